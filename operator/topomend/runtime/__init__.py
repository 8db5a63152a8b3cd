"""The plumbing of a long-running program: work queue, back-off, leader election, event recorder, HTTP endpoints, log.

Owns mechanism alone. Leaves to the rooms that use it what is healthy, what is counted, and what to do next.
"""
