"""The nodes that pods are sent to: their totals, who is assumed on them, and whether the pods arrive as they asked.

Leaves the choice among the nodes to ``decide``.
"""
