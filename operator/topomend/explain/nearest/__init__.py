"""The nearest amounts with which a node would admit a pod that it refuses: one amount changed, all else as it was.

An amount is what one container asks of one resource. The answer is exact although admission is not monotonic in the
amount (24 CPUs may be refused where 16 and 32 are admitted): every amount between the asked and the admitted one is
known to be refused, each by one of three means.

- A replay that refuses it (``refused_pod``).
- For memory, a replay of another amount in which every comparison came out the same (``tracked_amount``).
- A necessary condition that it misses (``search``): that the node has enough in all, and that the container (in scope
  pod: the pod) could be merged and could be given what it asks if nothing else changed.

The room owns no rule of admission: all of them are ``replay``'s.
"""
