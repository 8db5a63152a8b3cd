"""Why a pod has no node: the answer of each node, and what it lacks.

Leaves the choice among nodes that admit a pod to ``scoring``, and what follows to ``plan``.
"""
