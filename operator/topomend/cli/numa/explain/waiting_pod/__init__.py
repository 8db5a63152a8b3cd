"""What is told of a pod that waits for a node: why, what each node lacks, and who has to go."""
