"""Pools of nodes: the pods that typically come, and the share of what is free that they cannot use."""
