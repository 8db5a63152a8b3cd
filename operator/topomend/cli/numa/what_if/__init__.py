"""``what-if``: what becomes of pods under other settings or with more nodes, on a cluster or on a file of one."""
