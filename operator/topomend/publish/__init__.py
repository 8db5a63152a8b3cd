"""Writing the node's own NodeTopology, and no other object, when it changed and only then."""
