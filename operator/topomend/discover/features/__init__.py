"""What others select a node by: its labels and attributes, and the figures of its NUMA nodes."""
