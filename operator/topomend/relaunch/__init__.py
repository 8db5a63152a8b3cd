"""Carrying out a relaunch, crash-safe and exactly once. Which pod goes where, and why, is decided elsewhere."""
