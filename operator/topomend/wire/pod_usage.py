"""Read of a core/v1 Pod what it takes of its node's totals, as kube-scheduler counts it for a pod with a node.

While a running pod is resized, the scheduler counts the most of what is asked, allocated and actuated. Leaves the pod
that admission sees to ``pod``.
"""

from dataclasses import replace
from typing import Any

from topomend.model.pod import ONE_POD, Container, usage_of
from topomend.model.quantity import MilliQuantity
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pod import read_pod


def read_usage(content: dict[str, Any]) -> dict[str, MilliQuantity]:
    """What the pod takes, in thousandths by resource: its requests, and one of ``pods``.

    A pod that cannot be read counts as one without requests: it must not hide the others of its node.
    Source: component-helpers/resource:PodRequests with UseStatusResources.
    """
    try:
        pod = read_pod(content)
        resized = _resized(Document(content)["status"])
        if resized:
            asks = not _is_infeasible(Document(content)["status"])
            containers = tuple(_at_most(container, resized.get(container.name), asks) for container in pod.containers)
            pod = replace(pod, containers=containers)
        return usage_of(pod)
    except MalformedObject:
        return dict(ONE_POD)


def was_resized(content: dict[str, Any]) -> bool:
    """Whether anybody has ever resized the pod in place: what it takes now may not be what it took when it came."""
    return any(entry["subresource"].text("") == "resize" for entry in Document(content)["metadata"]["managedFields"])


def _resized(status: Document) -> dict[str, dict[str, MilliQuantity]]:
    """By container, the most that is allocated to it or actuated."""
    most: dict[str, dict[str, MilliQuantity]] = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status[kind]:
            amounts = (container["allocatedResources"], container["resources"]["requests"])
            if any(not each.absent for each in amounts):
                allocated, actuated = ({name: amount.quantity() for name, amount in each.fields()} for each in amounts)
                most[container["name"].text("")] = _most(allocated, actuated)
    return most


def _is_infeasible(status: Document) -> bool:
    return any(
        condition["type"].text("") == "PodResizePending" and condition["reason"].text("") == "Infeasible"
        for condition in status["conditions"]
    )


def _at_most(container: Container, given: dict[str, MilliQuantity] | None, asks: bool) -> Container:
    if given is None:
        return container
    requests = _most(dict(container.resources.requests), given) if asks else given
    return replace(container, resources=replace(container.resources, requests=requests))


def _most(left: dict[str, MilliQuantity], right: dict[str, MilliQuantity]) -> dict[str, MilliQuantity]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in [*left, *right]}
