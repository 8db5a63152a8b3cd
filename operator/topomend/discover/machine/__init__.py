"""The machine itself: processors, memory, caches and devices, and how far they are from each other."""
