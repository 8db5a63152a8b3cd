"""New nodes for pods that wait: a condition that autoscalers count, or a placeholder for which they add a node."""
