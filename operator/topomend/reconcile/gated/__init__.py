"""Pods that wait gated, alone or with their group, until they are ungated.

Owns when a waiting pod is looked at again, and for whom NUMA nodes are reserved or other pods evicted. Leaves its nodes
to ``placement``, and new nodes for it to ``autoscaling``.
"""
