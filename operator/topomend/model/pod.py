"""A pod as the kubelet's resource managers read it: identity, containers in admission order, quantities."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from topomend.model.quantity import MilliQuantity


class ContainerKind(Enum):
    """How long a container runs: before the others, beside them from the start, or as the pod's work."""

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
    """``containers`` stand in the order of admission: init containers and sidecars as written, then app containers.

    ``qos_class`` is the API server's ``status.qosClass``; empty has the rule computed. ``resources`` are the pod-level
    ones of ``spec.resources``, None where the pod has none.
    """

    namespace: str
    name: str
    uid: str = ""
    containers: tuple[Container, ...] = ()
    qos_class: str = ""
    resources: Resources | None = None


def largest_need(needs: Iterable[tuple[ContainerKind, int]]) -> int:
    """What containers, given in the order of admission, need at most at one time, in the unit of ``needs``.

    That is the most of: each init container beside the sidecars before it; all sidecars and app containers together.
    Source: KEP-753; component-helpers/resource:AggregateContainerRequests and the managers' own likes of it.
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


def requests_of(pod: Pod) -> dict[str, MilliQuantity]:
    """What a pod asks of a node's totals (k8s.io/component-helpers/resource:PodRequests), its overhead left out.

    Init containers run one after another beside the sidecars started before them; app containers beside all sidecars.
    """
    names = dict.fromkeys(name for container in pod.containers for name in container.resources.requests)
    most = {
        name: largest_need((container.kind, container.resources.requests.get(name, 0)) for container in pod.containers)
        for name in names
    }
    if pod.resources:
        most |= pod.resources.requests
    return {resource: amount for resource, amount in most.items() if amount > 0}
