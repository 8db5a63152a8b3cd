"""Read a core/v1 Pod with all that the kubelet's fit check reads of it. Leaves resources to ``pod``."""

from collections.abc import Iterator
from typing import Any

from topomend.model.pods.bound_pod import BoundPod, HostPort
from topomend.wire.document import Document
from topomend.wire.pods.pod import read_pod
from topomend.wire.pods.scheduling import CRITICAL_CLASSES, MAX_PRIORITY, MIRROR_ANNOTATION, read_placement

SOURCE_ANNOTATION, API_SOURCE = "kubernetes.io/config.source", "api"
"""Annotation of the kubelet: where a pod comes from (pkg/kubelet/types/pod_update.go:GetPodSource)."""

OS_LABEL = "kubernetes.io/os"

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
"""From this priority on a pod is critical (pkg/apis/scheduling/types.go)."""


def read_bound_pod(content: Any) -> BoundPod:
    """The BoundPod of a Pod object. Raises MalformedObject."""
    document = Document(content)
    metadata, spec = document["metadata"], document["spec"]
    annotations = metadata["annotations"]
    static = annotations[SOURCE_ANNOTATION].text(API_SOURCE) != API_SOURCE
    label = metadata["labels"][OS_LABEL]
    return BoundPod(
        pod=read_pod(content),
        placement=read_placement(spec),
        node=spec["nodeName"].text(""),
        host_ports=tuple(_host_ports(spec)),
        os=spec["os"]["name"].text(""),
        os_label=None if label.absent else label.text(),
        strict_groups=spec["securityContext"]["supplementalGroupsPolicy"].text("") == "Strict",
        static=static,
        critical=static or not annotations[MIRROR_ANNOTATION].absent or _is_critical(spec),
        by_claim=frozenset(_by_claim(document["status"]["extendedResourceClaimStatus"])),
    )


def _is_critical(spec: Document) -> bool:
    """The priority, or the class from which the API server takes it."""
    priority = spec["priority"].integer(0, least=-MAX_PRIORITY, most=MAX_PRIORITY)
    return priority >= SYSTEM_CRITICAL_PRIORITY or spec["priorityClassName"].text("") in CRITICAL_CLASSES


def _host_ports(spec: Document) -> Iterator[HostPort]:
    """Source: pkg/scheduler/util/utils.go:GetHostPorts."""
    sidecars = [each for each in spec["initContainers"] if each["restartPolicy"].text("") == "Always"]
    on_host = spec["hostNetwork"].boolean(default=False)
    for index, container in enumerate((*sidecars, *spec["containers"])):
        for port in container["ports"]:
            # On the node's network every port is the node's (apis/core/v1/defaults.go:defaultHostNetworkPorts).
            number = port["hostPort"].integer(0) or (port["containerPort"].integer(0) if on_host else 0)
            if number:
                yield HostPort(number, port["hostIP"].text(""), port["protocol"].text(""), index < len(sidecars))


def _by_claim(status: Document) -> Iterator[tuple[str, str]]:
    for mapping in status["requestMappings"]:
        yield mapping["containerName"].text(""), mapping["resourceName"].text("")
