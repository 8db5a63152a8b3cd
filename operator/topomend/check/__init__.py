"""What may be wrong with topomend, nodes and workloads: one small rule a fault, over facts that were read once.

Owns codes, severities, words and cures. Leaves reading a cluster to ``cli``, and every rule of a kubelet to ``replay``.
"""
