"""The order in which gated pods are ungated, where one would take another's node.

The pod of the highest priority is first, of any namespace. Of one priority the oldest of a namespace is first. An
*earlier* pod is one that comes before another by priority and age, a *later* one comes after it.

A wide pod would wait for ever if small pods took every CPU that comes free. So NUMA nodes are reserved for the earliest
pods that wait, where the pods in the way are expected to end: no later pod of any namespace is ungated for them. Owns
order and reservation; leaves for how long to ``reconcile/gated/reservation_turns``, and which nodes admit a pod to
``feasibility``.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice

from topomend.alignment.requested import admission_of
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.filters import filter_node, is_rejected
from topomend.decide.diagnosis.node_status import NodeStatus
from topomend.decide.queue.lines import QueueLines, in_turns
from topomend.decide.scoring import numa_nodes_of
from topomend.model.bitmask import NUMAMask
from topomend.model.nodes.node_state import NodeState, emptied, free_cpus
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.replay.admission import admit
from topomend.replay.effort import UNLIMITED, Effort
from topomend.wire.group import FIT_GATE

PATIENCE_SECONDS = 5.0
"""How long a pod waits before NUMA nodes are reserved for it."""

MAX_RESERVATIONS = 2
"""For how many pods NUMA nodes are reserved at a time. Reserved NUMA nodes are partly idle: the longest waits become
shorter and all others a little longer.

In virtual time, where 30 times 600 random pods ask for 60 % of all CPUs, reserving for one pod rather than for none
makes the p99 of the waits 15 % shorter and their mean 5 % longer, for two 13 % and 10 %; where 10 times 600 ask for
70 %, for one 16 % and 16 %, for two 23 % and 26 %."""

MAX_EARLIER_PODS = 10
"""How many earlier pods are tried on the nodes; a pod with more before it waits until some are gone."""

MAX_COMPARED_PODS, MAX_COMPARED_KINDS = 1_000, 50
"""How many earlier pods, and kinds of them, a pod is compared with, the earliest first. It may overtake the others: who
has thousands of pods of as many kinds decides for how long everybody else would wait for the comparison."""

MAX_TRIED_NODES = 50
"""On how many nodes a pod is tried for a reservation, those with the most CPUs free first."""

_RUN_UNTIL_DELETED = {
    ("apps", "ReplicaSet"),
    ("apps", "DaemonSet"),
    ("apps", "StatefulSet"),
    ("", "ReplicationController"),
    ("", "Node"),
}
"""Controllers whose pods do not end by themselves; a Node owns the pods of its kubelet's files."""


def is_expected_to_end(owner: Owner | None) -> bool:
    """Whether a running pod of this controller will end by itself; a bare pod and any batch controller's may."""
    return owner is None or (owner.group, owner.kind) not in _RUN_UNTIL_DELETED


@dataclass(frozen=True)
class Reservation:
    """NUMA nodes of ``node`` that are reserved for ``pod``: no later pod is ungated for them."""

    pod: WatchedPod
    node: str
    numa_nodes: NUMAMask


@dataclass(frozen=True)
class Reserved:
    """The reservations of a moment, and ``tried``: the pods (uids) for which no node can be reserved."""

    reservations: tuple[Reservation, ...] = ()
    tried: tuple[str, ...] = ()


def patient_pods(
    snapshot: Snapshot, now: float, resting: Container[str] = (), lines: QueueLines | None = None
) -> Sequence[WatchedPod]:
    """The pods for which NUMA nodes may be reserved, but for the ``resting`` (uids), and for pods of groups.

    A NUMA node kept for one pod of a group would be idle until all of them fit.

    The earliest of each namespace comes first, then the second of each, and so on; pods of one rank go by their order.
    ``lines`` are those of an earlier snapshot, which take less time than new ones.
    """

    def is_patient(pod: WatchedPod) -> bool:
        patient = now - snapshot.gated_since.get((pod.namespace, pod.name), now) >= PATIENCE_SECONDS
        return patient and pod.uid not in resting and is_waiting(snapshot, pod)

    by_namespace = (lines or QueueLines()).of(snapshot, now)
    return in_turns((filter(is_patient, line) for line in by_namespace), MAX_EARLIER_PODS)


def reserve(
    snapshot: Snapshot,
    pods: Iterable[WatchedPod],
    remaining: Callable[[str], NodeState | None],
    effort: Effort = UNLIMITED,
) -> Reserved:
    """Reserve NUMA nodes for the first MAX_RESERVATIONS of ``pods`` for which there are any.

    They are those with the most CPUs free, on nodes that will admit the pod. As no later pod comes there, they remain
    the ones with the most. ``remaining`` is a node's state once all pods have ended that are expected to end; None
    where that is not known yet. Raises Overspent.
    """
    reservations: list[Reservation] = []
    tried: list[str] = []
    names: list[str] | None = None
    for pod in islice(pods, MAX_EARLIER_PODS):
        if len(reservations) == MAX_RESERVATIONS:
            break
        names = by_most_free_cpus(snapshot, effort) if names is None else names
        taken = {reservation.node for reservation in reservations}
        others = [name for name in names if name not in taken]
        reservation, is_known = _reserve(snapshot, pod, others, remaining, effort)
        if reservation:
            reservations.append(reservation)
        elif is_known:
            tried.append(pod.uid)
    return Reserved(tuple(reservations), tuple(tried))


def reserved_numa_nodes(
    snapshot: Snapshot, pod: WatchedPod, reservations: Iterable[Reservation]
) -> dict[str, NUMAMask]:
    """The NUMA nodes, by node, that are reserved for pods earlier than ``pod`` and that still wait."""
    masks: dict[str, NUMAMask] = {}
    for reservation in reservations:
        if reservation.pod.order < pod.order and is_waiting(snapshot, reservation.pod):
            masks[reservation.node] = masks.get(reservation.node, 0) | reservation.numa_nodes
    return masks


def reserved_for(snapshot: Snapshot, pod: WatchedPod, reservations: Iterable[Reservation], node: str) -> str:
    """For whom NUMA nodes of ``node`` are reserved, in words for the users of the pod's namespace.

    They do not learn the names of another namespace's pods.
    """
    holders = [
        reservation.pod
        for reservation in reservations
        if reservation.node == node and reservation.pod.order < pod.order and is_waiting(snapshot, reservation.pod)
    ]
    named = [holder.name for holder in holders if holder.namespace == pod.namespace]
    if named:
        return f"{' and '.join(named)}, whose turn comes first"
    return "a pod of another namespace, whose turn comes first" if holders else "a pod whose turn comes first"


def is_waiting(snapshot: Snapshot, pod: WatchedPod) -> bool:
    """Whether the pod still waits to be ungated: only the operator's gate holds it, and it is assumed nowhere."""
    key = (pod.namespace, pod.name)
    gated = snapshot.gated.get(key)
    if gated is None or gated.uid != pod.uid or key in snapshot.assumed:
        return False
    return gated.gates == (FIT_GATE,) and not gated.deleting


def by_most_free_cpus(snapshot: Snapshot, effort: Effort) -> list[str]:
    """The nodes whose state is known, the one with the most CPUs free first. Raises Overspent."""
    by_free_cpus = [
        (-publication.state_with_assumed(effort).most_free_cpus, name)
        for name, publication in snapshot.publications.items()
        if name in snapshot.nodes and not publication.problem
    ]
    return [name for _, name in sorted(by_free_cpus)]


def _reserve(
    snapshot: Snapshot,
    pod: WatchedPod,
    names: Iterable[str],
    remaining: Callable[[str], NodeState | None],
    effort: Effort,
) -> tuple[Reservation | None, bool]:
    """The first of the nodes that will admit the pod, and whether all nodes before it are known."""
    fit = admission_of(pod.pod, effort)
    is_known = True
    for name in islice(_admitting_once_empty(snapshot, pod, names, effort), MAX_TRIED_NODES):
        later = remaining(name)
        if later is None:
            is_known = False
        elif fit.admits(later):
            current = snapshot.publications[name].state_with_assumed(effort)
            return Reservation(pod, name, _numa_nodes_for(pod.pod, later, current, effort)), True
    return None, is_known


def _admitting_once_empty(snapshot: Snapshot, pod: WatchedPod, names: Iterable[str], effort: Effort) -> Iterator[str]:
    """Those of the nodes that would admit the pod if nothing ran there."""
    fit, requests = admission_of(pod.pod, effort), requests_of(pod.pod)
    for name in names:
        allows = not filter_node(snapshot.nodes[name], pod.placement, requests)
        if allows and fit.admits(emptied(snapshot.publications[name].state)):
            yield name


def first_in_need(
    snapshot: Snapshot, pods: Iterable[WatchedPod], nodes: Sequence[str], effort: Effort = UNLIMITED
) -> WatchedPod | None:
    """The first of ``pods`` that one of these nodes would admit if nothing ran there. Raises Overspent."""
    return next((pod for pod in pods if any(_admitting_once_empty(snapshot, pod, nodes, effort))), None)


def _numa_nodes_for(pod: Pod, later: NodeState, current: NodeState, effort: Effort) -> NUMAMask:
    """Of the NUMA nodes large enough in ``later``, the one with the most CPUs free in ``current``.

    All of them for a pod that spans several.
    """
    verdict, after = admit(later, pod, effort)
    total, free = free_cpus(later), free_cpus(current)
    asked = sum(total.values()) - sum(free_cpus(after).values())
    large = [node for node, cpus in total.items() if cpus >= asked]
    if numa_nodes_of(verdict).bit_count() != 1 or not large:
        return current.machine.numa_mask
    return 1 << max(large, key=lambda node: (free[node], -node))


def yields_to(
    snapshot: Snapshot,
    pod: WatchedPod,
    nodes: Sequence[str],
    candidates: Sequence[NodeStatus] = (),
    effort: Effort = UNLIMITED,
) -> WatchedPod | None:
    """An earlier waiting pod that ``nodes`` would admit now, but no longer once ``pod`` is there.

    None where ``pod`` is next: ``nodes`` admit every earlier pod beside it, or would not admit it anyway. Other nodes
    of its ``candidates``, best first, get none of them: an earlier pod that more of those admit than there are earlier
    pods has a node whatever these do. Raises Overspent.
    """
    earlier_pods = list(_earlier(snapshot, pod))
    chosen = frozenset(nodes)
    without = _TrialAdmissions(snapshot, nodes, effort, lambda state: state)
    beside = _TrialAdmissions(snapshot, nodes, effort, lambda state: admit(state, pod.pod, effort)[1])
    unaffected: list[WatchedPod] = []
    placed = 0
    for earlier in nsmallest(MAX_COMPARED_PODS, earlier_pods, key=lambda pod: pod.order):
        # Case: one like it is not affected, so this one is not.
        if any(_is_alike(earlier, other) for other in unaffected):
            continue
        # Case: too many kinds to compare. The pod overtakes the rest rather than wait for the comparison.
        if len(unaffected) == MAX_COMPARED_KINDS:
            return None
        # Case: the nodes would not admit it anyway, or enough others do. It loses nothing.
        place = without.place_for(earlier)
        if not place or _enough_admit(snapshot, earlier, candidates, chosen, len(earlier_pods) + 1, effort=effort):
            unaffected.append(earlier)
            continue
        # Case: the nodes would admit it. It has to fit beside the pod too, and beside the earlier ones before it.
        without.admit(earlier, place)
        place = beside.place_for(earlier)
        if placed == MAX_EARLIER_PODS or not place:
            return earlier
        beside.admit(earlier, place)
        placed += 1
    return None


class _TrialAdmissions:
    """Pods admitted to ``nodes`` one after another, by replay alone. A node is replayed once a pod needs it."""

    def __init__(
        self, snapshot: Snapshot, nodes: Iterable[str], effort: Effort, begin: Callable[[NodeState], NodeState]
    ) -> None:
        self._snapshot, self._nodes, self._effort, self._begin = snapshot, nodes, effort, begin
        self._states: dict[str, NodeState] = {}

    def place_for(self, pod: WatchedPod) -> str:
        """The first node that admits the pod; empty where none does."""
        fit, requests = admission_of(pod.pod, self._effort), requests_of(pod.pod)
        for name in self._nodes:
            if not is_rejected(self._snapshot.nodes[name], pod.placement, requests) and fit.admits(self._state(name)):
                return name
        return ""

    def admit(self, pod: WatchedPod, name: str) -> None:
        """Admit the pod to the node of this name."""
        self._states[name] = admit(self._state(name), pod.pod, self._effort)[1]

    def _state(self, name: str) -> NodeState:
        if name not in self._states:
            state = self._snapshot.publications[name].state_with_assumed(self._effort)
            self._states[name] = self._begin(state)
        return self._states[name]


def _enough_admit(  # noqa: PLR0913  what an answer depends on
    snapshot: Snapshot,
    pod: WatchedPod,
    candidates: Sequence[NodeStatus],
    besides: Collection[str],
    enough: int,
    *,
    effort: Effort,
) -> bool:
    """Whether at least ``enough`` of the candidates' nodes admit the pod, not counting those ``besides``.

    The worst ones are asked first: they have the most room.
    """
    if len(candidates) - len(besides) < enough:
        return False
    fit, requests = admission_of(pod.pod, effort), requests_of(pod.pod)
    admitting = (
        candidate
        for candidate in reversed(candidates)
        if candidate.node not in besides
        and not is_rejected(snapshot.nodes[candidate.node], pod.placement, requests)
        and fit.admits(snapshot.publications[candidate.node].state_with_assumed(effort))
    )
    return len(list(islice(admitting, enough))) == enough


def _earlier(snapshot: Snapshot, pod: WatchedPod) -> Iterator[WatchedPod]:
    """The earlier pods that wait: namespaces themselves take turns, so those of others only by their priority."""
    for (namespace, _), gated in snapshot.gated.items():
        is_earlier = gated.order < pod.order if namespace == pod.namespace else gated.priority > pod.priority
        if is_earlier and is_waiting(snapshot, gated):
            yield gated


def _is_alike(one: WatchedPod, other: WatchedPod) -> bool:
    return (
        one.placement == other.placement
        and one.pod.containers == other.pod.containers
        and one.pod.resources == other.pod.resources
        and one.pod.overhead == other.pod.overhead
        and one.pod.claimed == other.pod.claimed
        and one.pod.single_numa_node == other.pod.single_numa_node
    )
