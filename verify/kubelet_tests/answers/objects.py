"""What several of the kubelet's packages send and receive: pods as they are, hints, refusals.

Pods are read without the defaults of the API server, which the kubelet's tests go without.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

from topomend.model.bitmask import NUMAMask, mask_of, members
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources
from topomend.model.quantity import parse_quantity
from topomend.replay.errors import Rejection
from topomend.replay.topology.hints import Answer, Hints, ResourceOffer
from topomend.replay.topology.merge import Hint
from topomend.replay.topology.numa_allocation_strategy import score


def read_pod(document: Mapping[str, Any]) -> Pod:
    metadata, spec = document["metadata"], document["spec"]
    initial = [_container(each, _initial_kind(each)) for each in spec.get("initContainers") or ()]
    apps = [_container(each, ContainerKind.APP) for each in spec.get("containers") or ()]
    return Pod(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        containers=(*initial, *apps),
        qos_class=document.get("status", {}).get("qosClass", ""),
        resources=None if spec.get("resources") is None else _resources(spec["resources"]),
    )


def read_container(document: Mapping[str, Any], pod: Pod | None = None) -> Container:
    """A container that is asked for by itself; its kind is that of its namesake in the pod."""
    kinds = {container.name: container.kind for container in pod.containers} if pod else {}
    return _container(document, kinds.get(document["name"], ContainerKind.APP))


def read_hint(document: Mapping[str, Any]) -> Hint:
    nodes = document["nodes"]
    return Hint(None if nodes is None else mask_of(nodes), document["preferred"])


def written_hint(hint: Hint) -> dict[str, Any]:
    return {"nodes": None if hint.mask is None else list(members(hint.mask)), "preferred": hint.preferred}


def written_hints(
    offer: ResourceOffer, universe: Iterable[int], usage: Callable[[str, NUMAMask], tuple[int, int]]
) -> list[dict[str, Any]] | None:
    """The list of hints that an offer stands for, in the kubelet's order; None without preference.

    ``usage`` is the manager's, of whose allocated and allocatable amounts each hint's score is the share.
    """
    if not isinstance(offer.offer, Hints):
        return [] if offer.offer is Answer.IMPOSSIBLE else None
    hints = offer.offer
    named = members(reduce(or_, hints.masks, 0))
    offered = filter(hints.offers, _masks({*universe, *named}))
    return [
        written_hint(Hint(mask, hints.prefers(mask))) | {"score": score(*usage(offer.resource, mask))}
        for mask in offered
    ]


def written_refusal(rejection: Rejection | None) -> dict[str, str]:
    return {"reason": rejection.reason, "error": rejection.error} if rejection else {}


def _masks(universe: Iterable[int]) -> Iterable[NUMAMask]:
    """All masks, the narrowest first (bitmask.go:IterateBitMasks)."""
    nodes = sorted(universe)
    return (mask_of(chosen) for size in range(1, len(nodes) + 1) for chosen in combinations(nodes, size))


def _initial_kind(document: Mapping[str, Any]) -> ContainerKind:
    return ContainerKind.SIDECAR if document.get("restartPolicy") == "Always" else ContainerKind.INIT


def _container(document: Mapping[str, Any], kind: ContainerKind) -> Container:
    return Container(document["name"], kind, _resources(document.get("resources") or {}))


def _resources(document: Mapping[str, Any]) -> Resources:
    return Resources(_quantities(document.get("requests")), _quantities(document.get("limits")))


def _quantities(document: Mapping[str, str] | None) -> dict[str, int]:
    return {name: parse_quantity(text) for name, text in (document or {}).items()}
