"""A pod as the kubelet's managers and the scheduler read it, and its controller."""
