"""A node as admission and the scheduler read it."""
