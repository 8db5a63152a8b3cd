"""What the verbs read from a cluster, at once or again after each change."""
