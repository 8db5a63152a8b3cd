"""The metrics of the operator: of pods, and of each pool of nodes."""
