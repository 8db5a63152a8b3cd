"""The kubelet's admission of a pod by its topology, replayed: what it would answer, word for word, and why.

One file a rule, under the kubelet's own name. Pure: a node's state and a pod go in, a verdict and the next state come
out. Start at ``admission.admit``.
"""
