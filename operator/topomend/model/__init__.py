"""The nouns: machine, kubelet settings, node state, pod, verdict, the scheduler's view of a node, relaunch record.

They are frozen values, use only the standard library, and do no I/O. Other rooms own the sources of the data
(``discover`` reads sysfs, ``wire`` reads API objects) and its use. Leaves plans to ``decide``, and the snapshot of the
whole cluster to ``cache``.
"""
