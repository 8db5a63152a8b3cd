"""The names of a device's attributes and capacities, with or without their domain."""


def qualified(name: str, driver: str) -> str:
    """The full name: one without a domain has the driver's (resource.k8s.io/v1:QualifiedName).

    From Kubernetes 1.38 on a request may leave the domain out as well (CapacityRequirements.requests).
    """
    return name if "/" in name else f"{driver}/{name}"
