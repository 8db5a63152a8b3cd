"""``kubectl numa selftest``: the command, the trials on a node, and what is printed of them."""
