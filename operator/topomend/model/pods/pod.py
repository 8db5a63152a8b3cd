"""A pod as the kubelet's resource managers read it: identity, containers in admission order, quantities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from topomend.model.quantity import MilliQuantity

SINGLE_NUMA_NODE = "single-numa-node"
"""The one alignment that a pod can ask for."""


class ContainerKind(Enum):
    """The kinds of containers: those that end before the next one starts, sidecars, and app containers."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True)
class Resources:
    """Requests and limits by resource name, in thousandths. Requests default to limits, as the API server does."""

    requests: Mapping[str, MilliQuantity] = field(default_factory=dict)
    limits: Mapping[str, MilliQuantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Container:
    """One container. ``kind`` SIDECAR is an init container with ``restartPolicy: Always``."""

    name: str
    kind: ContainerKind
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. ``containers`` are in the order of admission: init containers and sidecars, then app containers.

    ``qos_class`` is ``status.qosClass``; if it is empty, replay computes the class. ``resources`` are the pod-level
    ones of ``spec.resources``, None without any. ``overhead`` is what its runtime class adds, ``claimed`` what its
    claims take of the node's CPUs and memory (KEP-5517): both count against the node's totals and are never pinned.
    ``alignment`` is what its creator asks of topomend by annotation; no kubelet reads it, and any value but
    SINGLE_NUMA_NODE asks for nothing.
    """

    namespace: str
    name: str
    uid: str = ""
    containers: tuple[Container, ...] = ()
    qos_class: str = ""
    resources: Resources | None = None
    alignment: str = ""
    overhead: Mapping[str, MilliQuantity] = field(default_factory=dict)
    claimed: Mapping[str, MilliQuantity] = field(default_factory=dict)

    @property
    def single_numa_node(self) -> bool:
        """Whether it is to go only where each of its containers is placed on one NUMA node."""
        return self.alignment == SINGLE_NUMA_NODE


def largest_need(needs: Iterable[tuple[ContainerKind, int]]) -> int:
    """The most that containers need at any one time, in the unit of ``needs``, which are in the order of admission.

    It is the maximum of two needs: any init container with the sidecars before it; all sidecars and app containers.
    Source: KEP-753, component-helpers/resource:AggregateContainerRequests, and similar functions of the managers.
    """
    sidecars = at_start = apps = 0
    for kind, need in needs:
        if kind is ContainerKind.SIDECAR:
            sidecars += need
        elif kind is ContainerKind.INIT:
            at_start = max(at_start, sidecars + need)
        else:
            apps += need
    return max(at_start, sidecars + apps)


def is_extended(resource: str) -> bool:
    """Whether a device plugin can offer the resource (pkg/apis/core/v1/helper:IsExtendedResourceName)."""
    return "/" in resource


def container_requests(pod: Pod) -> dict[str, MilliQuantity]:
    """The most that the pod's containers request at any one time. Quantities by resource, none of them 0.

    Source: k8s.io/component-helpers/resource:aggregateContainerResourcesByFn.

    Init containers run one after another beside the sidecars started before them; app containers beside all sidecars.
    """
    names = dict.fromkeys(name for container in pod.containers for name in container.resources.requests)
    most = {
        name: largest_need((container.kind, container.resources.requests.get(name, 0)) for container in pod.containers)
        for name in names
    }
    return {resource: amount for resource, amount in most.items() if amount > 0}


def requests_of(pod: Pod) -> dict[str, MilliQuantity]:
    """The requests that a pod counts with against a node's totals. Quantities by resource, none of them 0.

    Source: k8s.io/component-helpers/resource:PodRequests.
    """
    most = container_requests(pod)
    if pod.claimed:
        most = sum_of(most, pod.claimed)
    if pod.resources:
        most |= pod.resources.requests
    if pod.overhead:
        most = sum_of(most, pod.overhead)
    return {resource: amount for resource, amount in most.items() if amount > 0}


ONE_POD: Mapping[str, MilliQuantity] = {"pods": 1000}
"""What every pod takes of a node's totals beside its requests: one of the ``pods`` that the node may have."""


def usage_of(pod: Pod) -> dict[str, MilliQuantity]:
    """What a pod takes of a node's totals: its requests, and ONE_POD."""
    return {**requests_of(pod), **ONE_POD}


def sum_of(left: Mapping[str, MilliQuantity], right: Mapping[str, MilliQuantity]) -> dict[str, MilliQuantity]:
    """The sums of two amounts by resource."""
    return {resource: left.get(resource, 0) + right.get(resource, 0) for resource in [*left, *right]}
