"""Whose turn it is among the pods that wait behind our gate for a node: the oldest's that a free place suits.

A wide pod would wait for ever where small ones take every CPU that comes free. So NUMA nodes are kept for the oldest
that wait: nothing younger is let go there until they have gone.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from topomend.cache.snapshot import Snapshot
from topomend.decide.filters import filter_pod
from topomend.decide.scoring import touched
from topomend.model.bitmask import NUMAMask
from topomend.model.cluster import WatchedPod
from topomend.model.node_state import NodeState, emptied, free_cpus, largest_hole
from topomend.model.pod import Pod
from topomend.replay.admission import admit
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.identity_cache import IdentityCache
from topomend.wire.group import FIT_GATE

PATIENCE_SECONDS = 5.0
"""How long a pod waits before NUMA nodes are kept for it."""

MAX_ENTRIES = 2
"""For how many pods at a time: what is kept stands partly empty, so that few wait very long, and more a little.

In virtual time, where 30 times 600 random pods ask for 60 % of all CPUs, keeping for one pod rather than for none makes
the p99 of the waits 15 % shorter and their mean 5 % longer, for two 13 % and 10 %; where 10 times 600 ask for 70 %, for
one 16 % and 16 %, for two 23 % and 26 %."""

MAX_OLDER_PODS = 10
"""Of how many older pods it is worked out whether they find places: who is behind more waits until some have gone."""


def kept(snapshot: Snapshot, pod: WatchedPod, now: float) -> dict[str, NUMAMask]:
    """The NUMA nodes, by their nodes, that are kept for older pods: ``pod`` may go anywhere else.

    They are those with the most CPUs free on the nodes that would admit the older pod without others: as nothing
    younger comes there, they stay that.
    """
    patient = [
        each
        for each in _older(snapshot, pod)
        if now - snapshot.gated_since.get((each.namespace, each.name), now) >= PATIENCE_SECONDS
    ]
    largest_first = _by_largest_hole(snapshot) if patient else ()
    found: dict[str, NUMAMask] = {}
    for older in sorted(patient, key=_age)[:MAX_OLDER_PODS]:
        if len(found) < MAX_ENTRIES:
            found |= _kept_for(snapshot, older, (each for each in largest_first if each not in found))
    return found


def _by_largest_hole(snapshot: Snapshot) -> list[str]:
    published = [
        (-_remembered_hole(each.state_with_assumed), name)
        for name, each in snapshot.publications.items()
        if name in snapshot.nodes and not each.problem
    ]
    return [name for _, name in sorted(published)]


def _kept_for(snapshot: Snapshot, pod: WatchedPod, names: Iterable[str]) -> dict[str, NUMAMask]:
    """The first of the nodes that could admit the pod, and its NUMA nodes that are to be kept: none where it admits it
    now, for then the pod has only not been looked at yet."""
    fit = FastAdmission(pod.pod)
    for name in names:
        empty, now = emptied(snapshot.publications[name].state), snapshot.publications[name].state_with_assumed
        if _may_go(snapshot, pod, name) and fit.admits(empty):
            return {} if fit.admits(now) else {name: _numa_nodes_for(pod.pod, empty, now)}
    return {}


def _numa_nodes_for(pod: Pod, empty: NodeState, now: NodeState) -> NUMAMask:
    """Where the pod is to go: onto the NUMA node with the most CPUs free of those that are large enough, or anywhere
    where it is spread over several."""
    verdict, after = admit(empty, pod)
    total, free = free_cpus(empty), free_cpus(now)
    asked = sum(total.values()) - sum(free_cpus(after).values())
    large = [node for node, cpus in total.items() if cpus >= asked]
    if touched(verdict).bit_count() != 1 or not large:
        return now.machine.numa_mask
    return 1 << max(large, key=lambda node: (free[node], -node))


def _remembered_hole(state: NodeState) -> int:
    known = _holes.of(state)
    if not known:
        known.append(largest_hole(state))
    return known[0]


_holes: IdentityCache[NodeState, list[int]] = IdentityCache(list)
"""Of each state the largest hole, once it was asked for."""


def yields_to(
    snapshot: Snapshot, pod: WatchedPod, nodes: Iterable[str], others: Sequence[str] = ()
) -> WatchedPod | None:
    """An older pod that waits as well and that finds a place on ``nodes`` now, but none once ``pod`` is there.

    None where it is this one's turn: all that are older find their places beside it, or would find none anyway.
    ``others`` are nodes that ``pod`` does not go to: whoever finds room on more of them than there are older pods
    finds it whatever those do.
    """
    waiting = sorted(_older(snapshot, pod), key=_age)
    without = {name: snapshot.publications[name].state_with_assumed for name in nodes}
    beside = {name: admit(state, pod.pod)[1] for name, state in without.items()} if waiting else {}
    unconcerned: list[WatchedPod] = []
    ahead = 0
    for older in waiting:
        if any(_asks_the_same(older, each) for each in unconcerned):
            continue
        if _has_room_on(snapshot, older, others, len(waiting) + 1) or not _takes_a_place(snapshot, older, without):
            unconcerned.append(older)
        elif ahead == MAX_OLDER_PODS or not _takes_a_place(snapshot, older, beside):
            return older
        else:
            ahead += 1
    return None


def _has_room_on(snapshot: Snapshot, pod: WatchedPod, names: Sequence[str], enough: int) -> bool:
    """Whether the pod finds room on so many of the nodes."""
    if len(names) < enough:
        return False
    fit = FastAdmission(pod.pod)
    room = (
        name
        for name in names
        if _may_go(snapshot, pod, name) and fit.admits(snapshot.publications[name].state_with_assumed)
    )
    return len(list(islice(room, enough))) == enough


def _takes_a_place(snapshot: Snapshot, pod: WatchedPod, states: dict[str, NodeState]) -> bool:
    """Put the pod onto the first node that admits it, if one does."""
    fit = FastAdmission(pod.pod)
    for name, state in states.items():
        if _may_go(snapshot, pod, name) and fit.admits(state):
            states[name] = admit(state, pod.pod)[1]
            return True
    return False


def _may_go(snapshot: Snapshot, pod: WatchedPod, name: str) -> bool:
    """Whether the scheduler could use the node."""
    return not filter_pod(snapshot.nodes[name], pod.placement, pod.pod)


def _older(snapshot: Snapshot, pod: WatchedPod) -> Iterator[WatchedPod]:
    for key, each in snapshot.gated.items():
        waits = each.gates == (FIT_GATE,) and not each.deleting and key not in snapshot.assumed
        if waits and each.uid != pod.uid and _age(each) < _age(pod):
            yield each


def _age(pod: WatchedPod) -> tuple[str, str, str]:
    return pod.creation_time, pod.namespace, pod.name


def _asks_the_same(one: WatchedPod, other: WatchedPod) -> bool:
    return (
        one.placement == other.placement
        and one.pod.containers == other.pod.containers
        and one.pod.resources == other.pod.resources
    )
