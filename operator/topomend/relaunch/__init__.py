"""Relaunch a refused pod exactly once, whatever crashes in between.

``protocol`` is the pure state machine, ``messages`` its requests and their answers; ``driver`` sends them. Owns the
``Relaunch`` record, the replacement's manifest and the preflight checks. Leaves to ``decide`` which pod is relaunched
and which nodes it may use, and to ``reconcile`` when.
"""
