"""The devices that a pod gets by ResourceClaims (KEP-4381), among the nodes that admit it."""
