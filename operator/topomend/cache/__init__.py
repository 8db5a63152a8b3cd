"""The operator's snapshot of the cluster, and the changes that lead from one snapshot to the next.

Owns the known state of the cluster, including assumed pods. Leaves watching to ``controller`` and decisions to
``decide``.
"""
