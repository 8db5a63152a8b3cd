"""What to do about a pod that a kubelet refused or that waits behind a gate: one plan, with its reason.

Owns filters, feasibility, scores and queue order. Asks ``replay`` about kubelets, ``cache`` about the cluster and
``explain`` for the reasons. Has no effects and no clock: ``reconcile`` calls it and carries the plan out.
"""
