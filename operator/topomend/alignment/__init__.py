"""Whether a container's CPUs, memory and devices are together: on one NUMA node, in one socket, or further apart.

Owns how a running container is judged, which pods ask for alignment, and why a container has nothing to align. Asks
``replay`` where a pod would be placed. Leaves which nodes are asked to ``decide``, and refusals to ``explain``.
"""
