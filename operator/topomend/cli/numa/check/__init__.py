"""``kubectl numa check``: reading what the checks need, once, and printing what they find."""
