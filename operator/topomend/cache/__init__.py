"""The operator's snapshot of the cluster, and the changes that lead from one snapshot to the next.

Owns what is known, assumed pods included. Leaves watching to ``controller`` and decisions to ``decide``.
"""
