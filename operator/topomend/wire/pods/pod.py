"""Read a core/v1 Pod, as the API server stores it or as a user wrote it, into the pod that admission sees.

Owns the defaults of resources that the API server fills in. Leaves placement and status to ``cluster``.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topomend.base.plain_text import plain
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, largest_need, sum_of
from topomend.model.quantity import MilliQuantity
from topomend.wire.document import Document
from topomend.wire.group import ALIGNMENT_ANNOTATION

CLAIMED_FIELDS = ("nodeAllocatableResourceClaimStatuses", "additionalNodeAllocatableResources")
"""Where the scheduler writes what claims take of a node's CPUs and memory: the field of Kubernetes 1.36 to
1.38.0-beta.0, and its new name in the proposal for beta (kubernetes/enhancements#6324), which no release has yet."""

MAX_ALIGNMENT = 40
"""How much of the annotation is kept: more than any value that means something."""


def read_pod(pod: dict[str, Any]) -> Pod:
    """The Pod with the defaults that the API server would have filled in: requests from limits, namespace.

    Ephemeral containers take no part in admission and are left out. Raises MalformedObject.
    Source: pkg/apis/core/v1/defaults.go:SetDefaults_Pod; kubelet topologymanager/scope.go (order of containers).
    """
    document = Document(pod)
    if document["kind"].text(default="Pod") != "Pod":
        raise document["kind"].wrong("Pod")
    metadata, spec = document["metadata"], document["spec"]
    initial = tuple(_container(container, _initial_kind(container)) for container in spec["initContainers"])
    apps = tuple(_container(container, ContainerKind.APP) for container in spec["containers"])
    if not apps:
        raise spec["containers"].wrong("a list of at least one container")
    return Pod(
        namespace=metadata["namespace"].text(default="default"),
        name=metadata["name"].text(default=metadata["generateName"].text(default="")),
        uid=metadata["uid"].text(default=""),
        containers=initial + apps,
        qos_class=document["status"]["qosClass"].text(default=""),
        resources=None if spec["resources"].absent else _pod_level(_given(spec["resources"]), initial + apps),
        alignment=plain(metadata["annotations"][ALIGNMENT_ANNOTATION].text(default=""), MAX_ALIGNMENT),
        overhead=_quantities(spec["overhead"]),
        claimed=_claimed(_claimed_statuses(document["status"])),
    )


def _claimed_statuses(status: Document) -> Document:
    """The one field of ``CLAIMED_FIELDS`` that is there: a server that has both writes the same to each."""
    former, renamed = (status[field] for field in CLAIMED_FIELDS)
    return former if renamed.absent else renamed


def _claimed(statuses: Document) -> dict[str, MilliQuantity]:
    """What the pod's claims take of the node's allocatable resources.

    The scheduler writes it if the feature DRANodeAllocatableResources is on, in 1.36 as ``resources``.
    Source: component-helpers/resource:addDRANodeAllocatableClaimResources (1.37).
    """
    claimed: dict[str, MilliQuantity] = {}
    for status in statuses:
        claimed = sum_of(claimed, _quantities(status["resources"]))
        containers = sum(1 for _ in status["containers"])
        for mapping in status["mapping"]:
            claimed = sum_of(claimed, {mapping["name"].text(): _amount(mapping["quantity"])})
        for overhead in status["overhead"]:
            amount = _optional(overhead["perPod"]) + containers * _optional(overhead["perContainer"])
            claimed = sum_of(claimed, {overhead["name"].text(): amount})
    return claimed


def _optional(quantity: Document) -> MilliQuantity:
    return 0 if quantity.absent else _amount(quantity)


def _initial_kind(container: Document) -> ContainerKind:
    sidecar = container["restartPolicy"].text(default="") == "Always"
    return ContainerKind.SIDECAR if sidecar else ContainerKind.INIT


def _container(container: Document, kind: ContainerKind) -> Container:
    return Container(container["name"].text(), kind, _resources(container["resources"]))


def _resources(resources: Document) -> Resources:
    given = _given(resources)
    return Resources(requests={**given.limits, **given.requests}, limits=given.limits)


def _given(resources: Document) -> Resources:
    return Resources(requests=_quantities(resources["requests"]), limits=_quantities(resources["limits"]))


def _pod_level(given: Resources, containers: Iterable[Container]) -> Resources:
    """Pod-level resources with the defaults that the API server takes from the containers, if the pod gives any at all.

    Source: pkg/apis/core/v1/defaults.go:defaultHugePagePodLimits, defaultPodRequests.
    """
    if not (given.limits or given.requests):
        return given
    containers = tuple(containers)
    hugepages = _aggregate(
        containers, lambda resources: resources.limits, lambda name: _is_hugepages(name) and name not in given.requests
    )
    limits = {**hugepages, **given.limits}
    if not limits:
        return given
    shared = _aggregate(containers, lambda resources: resources.requests, lambda name: name in ("cpu", "memory"))
    supported = {name: limit for name, limit in limits.items() if name in ("cpu", "memory") or _is_hugepages(name)}
    return Resources(requests={**supported, **shared, **given.requests}, limits=limits)


def _is_hugepages(name: str) -> bool:
    return name.startswith("hugepages-")


def _aggregate(
    containers: tuple[Container, ...],
    amounts: Callable[[Resources], Mapping[str, MilliQuantity]],
    wanted: Callable[[str], bool],
) -> dict[str, MilliQuantity]:
    names = {name: None for container in containers for name in amounts(container.resources) if wanted(name)}
    return {
        name: largest_need((container.kind, amounts(container.resources).get(name, 0)) for container in containers)
        for name in names
    }


def _quantities(resources: Document) -> dict[str, MilliQuantity]:
    return {name: _amount(quantity) for name, quantity in resources.fields()}


def _amount(quantity: Document) -> MilliQuantity:
    amount = quantity.quantity()
    if amount < 0:
        raise quantity.wrong("a quantity that is not negative")
    return amount
