"""A second copy of some of the kubelet's rules, for speed alone: thousands of nodes asked about one pod.

Whatever it answers is what ``replay.admission.admit`` answers, which its tests prove on random nodes and pods; whatever
it cannot tell it leaves to ``admit``. No rule lives here alone.
"""
