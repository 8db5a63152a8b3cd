"""What a long-running program needs whatever it does: its HTTP endpoints, and later its queues, timers and leadership.

Owns mechanism alone. What is healthy, what is counted and what is done next is decided by the rooms that use it.
"""
