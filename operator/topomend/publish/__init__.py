"""Keep the objects that describe this node true: its NodeTopology and, on request, its NodeResourceTopology.

Owns the times of writes and the definition of a change. Leaves the content to ``discover`` and ``wire``, and retries to
``agent``. Writes no other node's objects.
"""
