"""The nouns: what a machine, a kubelet, a node's state, a pod, a verdict and a plan are.

Everything here is a frozen value. Where the data came from (sysfs, an API object, a one-line shape) and what is done
with it belongs to other rooms; this one imports nothing but the standard library and does no I/O.
"""
