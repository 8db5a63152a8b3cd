"""Which of Kubernetes' files that rules name as their source changed between two releases."""
