"""A second copy of some of the kubelet's rules, for speed alone: one pod against thousands of nodes.

An admission takes ``replay.admission.admit`` 0.2 to 0.5 ms, so the first look of a pod at 5,000 nodes would take 1.1 to
2.5 s. From the free amounts of each NUMA node the same answers take 0.05 s.

The room owns no rule. Each answer is the one that ``admit`` gives, which the room's tests prove on random nodes and
pods. Where the free amounts do not decide, the room answers ``None`` or ``Precheck.UNCLEAR``, and ``admit`` decides.
"""
