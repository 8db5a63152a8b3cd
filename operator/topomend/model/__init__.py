"""The nouns: machine, kubelet settings, node state, pod, verdict, the scheduler's view of a node, relaunch record.

They are frozen values of the standard library alone, and do no I/O. Other rooms own where the data comes from
(``discover`` reads sysfs, ``wire`` reads API objects) and what happens with it. Plans belong to ``decide``, the view of
the whole cluster to ``cache``.
"""
