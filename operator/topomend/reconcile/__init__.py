"""Bring each refused or gated pod one step further: policy with its effects, between kopf and the pure rooms.

Owns what is done when, and what waits for what: reservations, back-off, the storm brake, events and metrics. Leaves
watching to ``controller``, what is best for a pod to ``decide``, and doing it exactly once to ``relaunch``.
"""
