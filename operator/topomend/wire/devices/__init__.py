"""Read the objects of resource.k8s.io/v1: classes, claims, slices and their selectors."""
