"""A node's made-up devices: a device plugin and a DRA driver, which the kubelet cannot tell from real ones.

Each is a process of its own, started by ``processes``.
"""
