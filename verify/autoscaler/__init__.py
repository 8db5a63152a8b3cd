"""A real autoscaler beside steered pods: Karpenter with its kwok provider, which makes nodes that have no machine.

A pod that waits gated must have a node asked for, a pod that no known node could admit must not.
"""
