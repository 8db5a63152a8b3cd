"""The checks themselves, by the object that a fault is in."""
