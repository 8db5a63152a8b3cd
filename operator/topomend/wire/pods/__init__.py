"""Read core/v1 Pods: each module those fields that one question needs."""
