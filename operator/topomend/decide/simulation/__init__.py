"""What if kubelets had another policy, or a pool more nodes: on empty nodes, or as pods came and ended."""
