"""Keep the objects that describe this node true: its NodeTopology and, on request, its NodeResourceTopology.

Owns when to write and what counts as changed. Leaves the content to ``discover`` and ``wire``, and retries to
``agent``. Writes no other node's objects.
"""
