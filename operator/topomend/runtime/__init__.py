"""The plumbing of a long-running program: work queue, back-off, leader election, event recorder, HTTP endpoints, log.

Owns mechanism only. Leaves health, metrics and every decision to the rooms that use it.
"""
