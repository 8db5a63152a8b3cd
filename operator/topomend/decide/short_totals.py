"""Pods for which only totals are short: no scheduler binds them anywhere now, so a gate protects them from nothing.

It only hides them from preemption and from autoscalers. Owns whether a waiting pod may be left to the scheduler before
a node admits it, and for which nodes. Leaves when that is done to ``reconcile/gated_pods``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from topomend.cache.snapshot import Snapshot
from topomend.decide.feasibility import NodeStatus
from topomend.decide.filters import filter_node_affinity, insufficient_resource
from topomend.model.cluster import HOSTNAME_LABEL, Node, WatchedPod
from topomend.model.narrowing import Narrowing
from topomend.model.node_state import NodeState, emptied
from topomend.model.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.qos import CPU

_OWN_RULES = ("NodeSelector", "NodeAffinity", "Taint")
"""The filters by which a pod's own rules keep it off a node."""

_PASSING = ("NotReady", "Unschedulable")
"""The filters that reject a node for a while."""

_PASSING_TAINTS = "node.kubernetes.io/"
"""The prefix of the taints that kubelet and node controllers put on a node for a while."""

_TOTALS = "InsufficientResources"


@dataclass(frozen=True)
class LeftToScheduler:
    """Ungate the pod for every node but those that would refuse it when its totals are there.

    ``may_be_refused``: a node of today may be bound to it whose NUMA nodes then do not have the room.
    """

    narrowing: Narrowing
    reason: str
    may_be_refused: bool


class _Prospect(Enum):
    """What a node that rejects the pod now means for it."""

    NONE = "its totals never suffice, or the pod's own rules keep it off"
    SHORT = "it lacks totals alone"
    EXCLUDED = "it would refuse the pod as soon as the scheduler could bind it there"
    PROTECTED = "the scheduler could bind the pod there now, and its kubelet would refuse it"


def left_to_scheduler(
    snapshot: Snapshot,
    pod: WatchedPod,
    rejected: Iterable[NodeStatus],
    is_short: Callable[[Node], bool],
) -> LeftToScheduler | None:
    """How a pod that no node admits is left to the scheduler; None where it has to wait.

    ``rejected`` are the answers of all nodes. ``is_short`` says whether the pods of a node leave it too little in
    total; it is asked only where the published allocations do not show that.
    """
    unknown = unknown_resources(snapshot, pod.pod)
    prospects = _Prospects(snapshot, pod, unknown, is_short)
    by_prospect: dict[_Prospect, list[str]] = {prospect: [] for prospect in _Prospect}
    comes_back = False
    for status in rejected:
        prospect = prospects.of(status)
        if prospect is _Prospect.PROTECTED:
            return None
        by_prospect[prospect].append(status.node)
        comes_back |= prospects.comes_back(status)
    short = by_prospect[_Prospect.SHORT]
    excluded = tuple(snapshot.nodes[name].labels[HOSTNAME_LABEL] for name in by_prospect[_Prospect.EXCLUDED])
    if short:
        reason = f"no node has {', '.join(unknown)}" if unknown else f"only totals are short, on {_named(short)}"
        return LeftToScheduler(Narrowing(excluded=excluded), _left(reason), may_be_refused=not unknown)
    if comes_back or not prospects.is_any_kind_large_enough():
        return None
    return LeftToScheduler(
        Narrowing(excluded=excluded), _left("only a node that is not there yet would admit it"), may_be_refused=False
    )


def unknown_resources(snapshot: Snapshot, pod: Pod) -> tuple[str, ...]:
    """The extended resources that the pod requests and that no node of the cluster has, nor ever had.

    A device plugin that is away leaves its resource in the node's capacity.
    """
    extended = [resource for resource in requests_of(pod) if "/" in resource]
    return tuple(
        resource
        for resource in extended
        if not any(
            resource in node.capacity or resource in node.allocatable or resource in node.by_claim
            for node in snapshot.nodes.values()
        )
        and not any(
            device.resource == resource
            for publication in snapshot.publications.values()
            for device in publication.state.devices
        )
    )


def _left(why: str) -> str:
    return f"{why}: the scheduler and autoscalers see the pod from now on"


def _named(nodes: list[str]) -> str:
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return f"{', '.join(nodes[:3])}{more}"


class _Prospects:
    """The prospects of one pod."""

    def __init__(
        self, snapshot: Snapshot, pod: WatchedPod, unknown: tuple[str, ...], is_short: Callable[[Node], bool]
    ) -> None:
        self._snapshot, self._pod, self._unknown, self._is_short = snapshot, pod, unknown, is_short
        self._fit = FastAdmission(pod.pod)
        self._known = _without(pod.pod, unknown)

    def of(self, status: NodeStatus) -> _Prospect:
        """The prospect of a node that rejects the pod for this reason."""
        node = self._snapshot.nodes.get(status.node)
        if node is None or (status.reason in _OWN_RULES and not self.comes_back(status)):
            return _Prospect.NONE
        publication = self._snapshot.publications.get(node.name)
        if filter_node_affinity(node, self._pod.placement):
            return _Prospect.PROTECTED  # it has no hostname to exclude it by
        if publication is None or publication.problem or not self._is_large_enough(publication.state):
            return _Prospect.EXCLUDED
        if insufficient_resource(node, self._known, ()):
            return _Prospect.NONE
        if self.comes_back(status):
            admits = self._fit.admits(publication.state_with_assumed)
            return _Prospect.NONE if admits else _Prospect.EXCLUDED
        if self._unknown or status.reason == _TOTALS:
            return _Prospect.SHORT
        if not status.is_refusal:
            return _Prospect.PROTECTED
        is_short = _exclusive_exceeds(node, publication.state_with_assumed, self._pod.pod) or self._is_short(node)
        return _Prospect.SHORT if is_short else _Prospect.PROTECTED

    def comes_back(self, status: NodeStatus) -> bool:
        """Whether the scheduler does not use the node for a while only."""
        if status.reason != "Taint":
            return status.reason in _PASSING
        return any(taint.key.startswith(_PASSING_TAINTS) for taint in self._snapshot.nodes[status.node].taints)

    def is_any_kind_large_enough(self) -> bool:
        """Whether a machine like one of today's would admit the pod when empty, whatever the pod's own rules say."""
        return any(
            not publication.problem
            and name in self._snapshot.nodes
            and not insufficient_resource(self._snapshot.nodes[name], self._known, ())
            and self._is_large_enough(publication.state)
            for name, publication in self._snapshot.publications.items()
        )

    def _is_large_enough(self, state: NodeState) -> bool:
        return self._fit.admits(emptied(state))


def _without(pod: Pod, resources: tuple[str, ...]) -> Pod:
    """The pod as its totals count, without these resources."""
    asked = {resource: amount for resource, amount in requests_of(pod).items() if resource not in resources}
    return replace(pod, containers=(Container("all", ContainerKind.APP, Resources(asked, {})),), resources=None)


def _exclusive_exceeds(node: Node, state: NodeState, pod: Pod) -> bool:
    """Whether what the node's pods hold exclusively leaves too little for the pod: they requested at least that."""
    held = sum(container.cpus.bit_count() for other in state.pods for container in other.containers)
    return held * 1000 + requests_of(pod).get(CPU, 0) > node.allocatable.get(CPU, 0)
