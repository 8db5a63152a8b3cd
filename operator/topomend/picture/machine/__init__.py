"""A node as lstopo draws a machine: its boxes, its devices, and what each of the holders has of them."""
