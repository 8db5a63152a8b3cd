"""Reconcile refused and gated pods: the operator's policy and its effects.

Owns the order and the timing of actions: reservations, back-off, the storm brake, events and metrics. Leaves watching
to ``controller``, the best plan for a pod to ``decide``, and carrying it out exactly once to ``relaunch``.

By object: ``refused`` and ``gated`` pods, their ``placement`` on nodes and ``autoscaling`` for new ones, the ``nodes``
themselves, and what mode ``observe`` does instead. ``reconciler`` puts these together; beside it is what they share.
"""
