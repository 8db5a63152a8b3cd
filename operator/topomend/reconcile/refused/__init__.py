"""Pods that a kubelet refused, or that no scheduler can bind where they were sent: relaunch, deletion and the brake.

Owns how many relaunches and deletions there are, and when. Leaves the requests of a relaunch to ``relaunch``.
"""
