"""Read of a core/v1 Pod what it takes of its node's totals, as kube-scheduler counts it for a pod with a node.

While a running pod is resized, the scheduler counts the most of what is asked, allocated and actuated. Leaves the pod
that admission sees to ``pod``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from topomend.base.bounded_dict import BoundedDict
from topomend.model.pods.pod import ONE_POD, Container, usage_of
from topomend.model.quantity import MilliQuantity
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.pod import CLAIMED_FIELDS, read_pod

MAX_KEPT = 4096
"""How many answers a UsageReader keeps."""

RESIZE_PENDING = "PodResizePending"
"""The condition of a pod whose kubelet does not resize it yet, or never will."""

_CONTAINERS, _STATUSES = ("initContainers", "containers"), ("initContainerStatuses", "containerStatuses")


def read_usage(content: dict[str, Any]) -> dict[str, MilliQuantity]:
    """What the pod takes, in thousandths by resource: its requests, and one of ``pods``.

    A pod that cannot be read counts as one without requests: it must not hide the others of its node.
    Source: component-helpers/resource:PodRequests with UseStatusResources.
    """
    try:
        pod = read_pod(content)
        resized = _resized(Document(content))
        if resized:
            asks = not _is_infeasible(Document(content)["status"])
            containers = tuple(_at_most(container, resized.get(container.name), asks) for container in pod.containers)
            pod = replace(pod, containers=containers)
        return usage_of(pod)
    except MalformedObject:
        return dict(ONE_POD)


class UsageReader:
    """Reads what many pods take: those that ask for the same, as the pods of a workload do, are read once."""

    def __init__(self) -> None:
        self._known: BoundedDict[str, Mapping[str, MilliQuantity]] = BoundedDict(MAX_KEPT)

    def read(self, content: dict[str, Any]) -> Mapping[str, MilliQuantity]:
        """As ``read_usage``, of a pod that the API server sent."""
        key = repr(_what_counts(content))
        usage = self._known.get(key)
        if usage is None:
            usage = self._known[key] = read_usage(content)
        return usage


def _what_counts(content: dict[str, Any]) -> tuple[object, ...]:
    """All of the pod that ``read_usage`` reads; little else of one that has no more fields than ``shapes.BoundPod``."""
    spec, status = content.get("spec") or {}, content.get("status") or {}
    return (
        *map(spec.get, (*_CONTAINERS, "resources", "overhead")),
        *map(status.get, (*_STATUSES, *CLAIMED_FIELDS)),
        [each for each in status.get("conditions") or () if each.get("type") == RESIZE_PENDING],
    )


def was_resized(content: dict[str, Any]) -> bool:
    """Whether anybody has ever resized the pod in place: what it takes now may not be what it took when it came."""
    return any(entry["subresource"].text("") == "resize" for entry in Document(content)["metadata"]["managedFields"])


def _resized(pod: Document) -> dict[str, dict[str, MilliQuantity]]:
    """By container, the most that is allocated to it or actuated, where that is not just what it requests."""
    most: dict[str, dict[str, MilliQuantity]] = {}
    requested = {
        container["name"].text(""): container["resources"]["requests"].content
        for kind in _CONTAINERS
        for container in pod["spec"][kind]
    }
    for kind in _STATUSES:
        for container in pod["status"][kind]:
            amounts = (container["allocatedResources"], container["resources"]["requests"])
            name = container["name"].text("")
            if any(not each.absent and each.content != requested.get(name) for each in amounts):
                allocated, actuated = ({key: amount.quantity() for key, amount in each.fields()} for each in amounts)
                most[name] = _most(allocated, actuated)
    return most


def _is_infeasible(status: Document) -> bool:
    return any(
        condition["type"].text("") == RESIZE_PENDING and condition["reason"].text("") == "Infeasible"
        for condition in status["conditions"]
    )


def _at_most(container: Container, given: dict[str, MilliQuantity] | None, asks: bool) -> Container:
    if given is None:
        return container
    requests = _most(dict(container.resources.requests), given) if asks else given
    return replace(container, resources=replace(container.resources, requests=requests))


def _most(left: dict[str, MilliQuantity], right: dict[str, MilliQuantity]) -> dict[str, MilliQuantity]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in [*left, *right]}
