"""Why a kubelet refused or would refuse a pod, and what the pod or the node would need.

Owns the causes, their wording and the remedies: the nearest amounts and settings that it would admit. Asks ``replay``.
Leaves which nodes are asked, and what the scheduler says of them, to ``decide``.
"""
