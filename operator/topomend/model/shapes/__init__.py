"""Machines as people write them: a line of text, what Linux printed, or the name under which one is sold."""
