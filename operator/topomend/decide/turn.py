"""Whose turn it is among the pods that wait behind our gate for a node: the oldest's that a free place suits.

A wide pod would wait for ever where small ones take every CPU that comes free. So a node is kept for the oldest that
has waited for long: nothing younger is let go there until it has gone.
"""

from collections.abc import Iterable, Iterator

from topomend.decide.scheduling import why_not_schedulable
from topomend.model.cluster import WatchedPod
from topomend.model.node_state import NodeState, emptied, free_cpus
from topomend.replay.admission import admit
from topomend.replay.fit import Fit
from topomend.watch.view import ClusterView
from topomend.wire.group import FIT_GATE

PATIENCE_SECONDS = 30.0
"""How long a pod waits before a node is kept for it. What is kept stands partly empty, so it is no first resort."""

MOST_AHEAD = 10
"""Of how many older pods it is worked out whether they find places: who is behind more waits until some have gone."""


def kept_node(view: ClusterView, pod: WatchedPod, now: float) -> str:
    """The node that is kept for an older pod; empty where ``pod`` may go anywhere.

    It is the one that has the most CPUs free on a NUMA node, of those that would admit the older pod without others:
    as nothing younger comes there, it stays that.
    """
    patient = [
        each
        for each in _older(view, pod)
        if now - view.gated_since.get((each.namespace, each.name), now) >= PATIENCE_SECONDS
    ]
    for older in sorted(patient, key=_age):
        node = _nearest(view, older)
        if node:
            return node
    return ""


def _nearest(view: ClusterView, pod: WatchedPod) -> str:
    fit = Fit(pod.pod)
    known = [(name, each) for name, each in view.publications.items() if name in view.nodes and not each.problem]
    known.sort(key=lambda each: (-max(free_cpus(each[1].expected).values(), default=0), each[0]))
    for name, each in known:
        if not why_not_schedulable(view.nodes[name], pod.placement, pod.pod) and fit.admits(emptied(each.state)):
            return name
    return ""


def goes_first(view: ClusterView, pod: WatchedPod, nodes: Iterable[str]) -> WatchedPod | None:
    """An older pod that waits as well and that finds a place on ``nodes`` now, but none once ``pod`` is there.

    None where it is this one's turn: all that are older find their places beside it, or would find none anyway.
    """
    without = {name: view.publications[name].expected for name in nodes}
    beside = {name: admit(state, pod.pod)[1] for name, state in without.items()}
    refused: list[WatchedPod] = []
    ahead = 0
    for older in sorted(_older(view, pod), key=_age):
        if any(_asks_the_same(older, each) for each in refused):
            continue
        if not _takes_a_place(view, older, without):
            refused.append(older)
        elif ahead == MOST_AHEAD or not _takes_a_place(view, older, beside):
            return older
        else:
            ahead += 1
    return None


def _takes_a_place(view: ClusterView, pod: WatchedPod, states: dict[str, NodeState]) -> bool:
    """Put the pod onto the first node that admits it, if one does."""
    fit = Fit(pod.pod)
    for name, state in states.items():
        if not why_not_schedulable(view.nodes[name], pod.placement, pod.pod) and fit.admits(state):
            states[name] = admit(state, pod.pod)[1]
            return True
    return False


def _older(view: ClusterView, pod: WatchedPod) -> Iterator[WatchedPod]:
    for key, each in view.gated.items():
        waits = each.gates == (FIT_GATE,) and not each.deleting and key not in view.on_their_way
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
