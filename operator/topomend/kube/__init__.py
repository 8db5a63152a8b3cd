"""The Kubernetes API: clients, and their errors translated once. What to ask for is decided elsewhere."""
