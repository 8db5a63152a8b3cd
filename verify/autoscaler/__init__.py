"""A real autoscaler beside pods that wait: Karpenter with its kwok provider, which makes nodes that have no machine.

A pod that waits gated must have a node asked for, and with placeholders also one that lacks nothing but a NUMA node and
one that was refused. A pod that no known node could admit must not.
"""
