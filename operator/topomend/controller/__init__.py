"""The operator as a process: watch streams in, reconciliation out.

Owns kopf, the threads and their wiring. Leaves every decision and its effects to ``reconcile`` and the rooms below.
"""
