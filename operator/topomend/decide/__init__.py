"""What to do about a pod that a kubelet refused or that waits behind a gate: one plan, with its reason.

Owns filters, feasibility, scores, queue order and explanations. Asks ``replay`` about kubelets and ``cache`` about the
cluster. Has no effects and no clock: ``reconcile`` calls it and carries the plan out.
"""
