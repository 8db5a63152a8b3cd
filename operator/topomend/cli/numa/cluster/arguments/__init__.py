"""What a user names: a pod, a workload, labels or a file."""
