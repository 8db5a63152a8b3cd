"""The plumbing of a long-running program: back-off, leader election, event recorder, duties, threads, log.

``queues`` has what waits and in which order, ``http`` the server of health endpoints, metrics and the webhook. Owns
mechanism only. Leaves health, metrics and every decision to the rooms that use it.
"""
