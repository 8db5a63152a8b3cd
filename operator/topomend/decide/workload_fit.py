"""Whether all pods of a workload fit together, by replay of each node's kubelet: for an admission check of Kueue.

Owns which pods stand for a workload, on how few nodes each pod set goes, and the words of the answer. Leaves the choice
of nodes for many pods to ``gang``, and what an answer means for quota to ``reconcile/kueue``.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.feasibility import NO_EXCLUDED_NODES, ExcludedNodes, diagnose
from topomend.decide.diagnosis.filters import lacking_in_total
from topomend.decide.diagnosis.near_miss import closest, closest_words
from topomend.decide.diagnosis.node_status import NodeStatus
from topomend.decide.diagnosis.survey import Surveys
from topomend.decide.gang import Placed, Unplaced, choose_for_all, with_placed
from topomend.decide.queue.order import Reservation
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.pod import requests_of
from topomend.model.pods.queued_workload import PodSet
from topomend.model.pods.scheduling import WatchedPod
from topomend.replay.effort import UNLIMITED, Effort

MAX_PODS = 500
"""The most pods of a workload about which nodes are asked, as of a group of pods."""

MAX_TRIED = 3
"""On how many nodes it is tried to have all pods of a pod set."""

MAX_NAMED = 8
"""How many nodes are named in an answer."""

_ELSEWHERE = "elsewhere"
"""The answer of a node that is not tried."""


@dataclass(frozen=True)
class Asked:
    """What a choice for a workload depends on, beside the snapshot. The fields are those of ``gang.choose_for_all``."""

    reservations: Sequence[Reservation] = ()
    excluded_nodes: Mapping[str, ExcludedNodes] | None = None
    surveys: Surveys | None = None
    effort: Effort = UNLIMITED
    for_one: Callable[[], Effort] = lambda: UNLIMITED


def members(pod_set: PodSet) -> tuple[WatchedPod, ...]:
    """A pod for each of the set; no such pods exist. Their names have a slash, as no pod's name has."""
    return tuple(
        replace(
            pod_set.pod,
            name=f"{pod_set.pod.name}/{number}",
            uid=f"{pod_set.pod.uid}/{number}",
            pod=replace(pod_set.pod.pod, name=f"{pod_set.pod.name}/{number}", uid=f"{pod_set.pod.uid}/{number}"),
        )
        for number in range(pod_set.count)
    )


def choose_places(
    snapshot: Snapshot, pods: Mapping[str, Sequence[WatchedPod]], asked: Asked, *, together: bool = False
) -> tuple[Placed, ...] | Unplaced:
    """A node for each of the ``pods``, which are by pod set, or the first one that gets none beside the others.

    ``together``: each pod set goes to one node where one has room for all of it. Raises Overspent, TurnOver.
    """
    if together:
        chosen = _together(snapshot, pods, asked)
        if not isinstance(chosen, Unplaced):
            return chosen
    return _choose(snapshot, [pod for members_of_set in pods.values() for pod in members_of_set], asked)


def _together(
    snapshot: Snapshot, pods: Mapping[str, Sequence[WatchedPod]], asked: Asked
) -> tuple[Placed, ...] | Unplaced:
    """As ``choose_places``, each pod set on one node where that is possible, the largest pods first."""
    placed, others = list[Placed](), list[WatchedPod]()
    for of_set in sorted(pods.values(), key=lambda of_set: -requests_of(of_set[0].pod).get("cpu", 0)):
        on_one = _on_one_node(snapshot, of_set, asked)
        placed += on_one
        snapshot = with_placed(snapshot, on_one)
        others += () if on_one else of_set
    rest = _choose(snapshot, others, asked)
    if isinstance(rest, Unplaced):
        return rest
    return (*placed, *rest)


def _on_one_node(snapshot: Snapshot, pods: Sequence[WatchedPod], asked: Asked) -> Sequence[Placed]:
    """All of these pods of one kind on one node; empty where none of the first MAX_TRIED that may have room has it."""
    excluded = (asked.excluded_nodes or {}).get(pods[0].uid, NO_EXCLUDED_NODES)
    answers = diagnose(
        snapshot, pods[0].pod, pods[0].placement, None, excluded, surveys=asked.surveys, effort=asked.for_one()
    )
    together = {resource: amount * len(pods) for resource, amount in requests_of(pods[0].pod).items()}
    roomy = (
        status.node for status in answers.candidates if not lacking_in_total(snapshot.nodes[status.node], together)
    )
    for node in islice(roomy, MAX_TRIED):
        if len(pods) > 1:
            elsewhere = {name: NodeStatus(name, _ELSEWHERE) for name in snapshot.nodes if name != node} | dict(excluded)
            alone = replace(asked, excluded_nodes={pod.uid: elsewhere for pod in pods})
        else:
            alone = asked
        chosen = _choose(snapshot, pods, alone)
        if not isinstance(chosen, Unplaced) and all(placed.node for placed in chosen):
            return chosen
    return ()


def _choose(snapshot: Snapshot, pods: Sequence[WatchedPod], asked: Asked) -> tuple[Placed, ...] | Unplaced:
    if not pods:
        return ()
    return choose_for_all(
        snapshot,
        pods,
        asked.reservations,
        asked.excluded_nodes,
        surveys=asked.surveys,
        effort=asked.effort,
        for_one=asked.for_one,
    )


def pins(snapshot: Snapshot, pod_sets: Sequence[PodSet], placed: Sequence[Placed]) -> Mapping[str, str]:
    """The hostname label of the one node of each pod set that has one, and whose pods are to be narrowed to it.

    A pod set that names a host itself gets none: Kueue lets no check change a label that the pods select.
    """
    hosts: dict[str, str] = {}
    for pod_set in pod_sets:
        own = [each for each in placed if each.pod.name.startswith(f"{pod_set.pod.name}/")]
        nodes = {each.node for each in own}
        is_free = HOSTNAME_LABEL not in pod_set.pod.placement.node_selector and not pod_set.spread_by_kueue
        if len(nodes) == 1 and "" not in nodes and is_free and any(each.narrowing.hosts for each in own):
            hosts[pod_set.name] = snapshot.nodes[own[0].node].labels[HOSTNAME_LABEL]
    return hosts


def fit_words(placed: Sequence[Placed]) -> str:
    """``3 pods fit by replay: 2 on node-1, 1 on node-2``."""
    if not placed:
        return "it has no pods"
    return f"{_pods(len(placed))} fit{'s' if len(placed) == 1 else ''} by replay: {', '.join(_counts(placed))}"


def _counts(placed: Sequence[Placed]) -> Iterator[str]:
    counts = Counter(each.node for each in placed)
    unknown = counts.pop("", 0)
    for node, count in counts.most_common(MAX_NAMED):
        yield f"{count} on {node}"
    if len(counts) > MAX_NAMED:
        yield f"the others on {len(counts) - MAX_NAMED} more nodes"
    if unknown:
        yield f"{unknown} on nodes without an agent, of which nothing is known"


def unfit_words(snapshot: Snapshot, unplaced: Unplaced, effort: Effort = UNLIMITED) -> str:
    """Why a pod fits nowhere beside the others, and which node comes closest and lacks what. Raises Overspent."""
    beside = with_placed(snapshot, unplaced.beside)
    status = closest(beside, unplaced.pod.pod, unplaced.wait.diagnosis.rejected, effort)
    if status is None:
        return unplaced.wait.reason
    words = closest_words(beside, unplaced.pod.pod, status, beside.nodes[status.node].used, effort)
    return f"{unplaced.wait.reason}; {words}"


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"
