"""Read resource.k8s.io/v1 DeviceClasses: which extended resources are provided by claims."""

from typing import Any

from topomend.wire.document import Document

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With a DeviceClass's name, the extended resource that it always maps
(k8s.io/api/resource/v1:ResourceDeviceClassPrefix)."""


def read_mapped_resources(content: Any) -> tuple[str, ...]:
    """The extended resources that a DeviceClass maps (KEP-5004). Raises MalformedObject."""
    document = Document(content)
    named = document["spec"]["extendedResourceName"].text("")
    implicit = f"{IMPLICIT_PREFIX}{document['metadata']['name'].text()}"
    return (implicit, named) if named else (implicit,)
