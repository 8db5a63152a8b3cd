"""What a node that rejects a waiting pod lacks, which node comes closest, and what would get the pod admitted there.

Owns these words, which events and ``kubectl numa explain`` share. Leaves the nodes' answers to ``feasibility``, and the
remedies to ``explain``.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.filters import first_exceeded
from topomend.decide.diagnosis.node_status import INSUFFICIENT, NOT_ALIGNED, UNKNOWN, NodeStatus
from topomend.decide.diagnosis.totals import Requests, ask_with_totals
from topomend.explain.explanation import cause_of
from topomend.explain.manager_error import lacking_in_all
from topomend.explain.refused_merge import lacking, refused_merge
from topomend.explain.remedy import Remedy, remedy_of
from topomend.explain.trace_text import amount_text, free_text
from topomend.model.pods.pod import ONE_POD, Pod, requests_of, sum_of
from topomend.replay.admission import admit
from topomend.replay.effort import UNLIMITED, Effort

MOST_TRIED = 20
"""Of how many nodes whose kubelets refuse a pod the closest is sought for an event."""

_UNMEASURED = float("inf")


@dataclass(frozen=True)
class Lack:
    """What ``node`` lacks for a pod, in words; ``free`` is what its NUMA nodes have of that, empty where none counts.

    ``share`` is how much of the requests is missing, infinite where that is no amount.
    """

    node: str
    words: str
    free: str = ""
    share: float = _UNMEASURED

    @property
    def text(self) -> str:
        """``node-1 lacks 2 of 5 cpu (free 3 on NUMA 0)``."""
        return f"{self.node} lacks {self.words}{f' (free {self.free})' if self.free else ''}"


def lack_of(snapshot: Snapshot, pod: Pod, status: NodeStatus, effort: Effort = UNLIMITED) -> Lack:
    """What the node of ``status``, which rejects the pod, lacks. Raises Overspent."""
    if status.is_refusal or status.reason == NOT_ALIGNED:
        return _lack_of_kubelet(snapshot, pod, status, effort)
    if status.reason == INSUFFICIENT:
        resource = "room" if status.summary == INSUFFICIENT else status.summary
        return Lack(status.node, f"{resource} in total")
    if status.reason == UNKNOWN:
        return Lack(status.node, "a published state that can be used")
    return Lack(status.node, f"what the scheduler asks: {status.summary or status.reason}")


def closest(
    snapshot: Snapshot, pod: Pod, rejected: Iterable[NodeStatus], effort: Effort = UNLIMITED
) -> NodeStatus | None:
    """The node that lacks the smallest share, of the first MOST_TRIED whose kubelets refuse the pod; None without one.

    A node that is gone from the snapshot since counts no more. Raises Overspent.
    """
    there = snapshot.nodes.keys() & snapshot.publications.keys()
    refusals = islice((status for status in rejected if status.is_refusal and status.node in there), MOST_TRIED)
    return min(refusals, key=lambda status: lack_of(snapshot, pod, status, effort).share, default=None)


def closest_words(
    snapshot: Snapshot, pod: Pod, status: NodeStatus, used: Requests | None, effort: Effort = UNLIMITED
) -> str:
    """``closest: node-1 lacks 2 of 5 cpu (...); would be admitted with 3 CPUs``: of the closest node.

    ``used`` as in ``remedy_at``. Where it is not known, nothing is said of what would help: the node may have less left
    in total than its kubelet would admit. Raises Overspent.
    """
    words = "" if used is None else remedy_at(snapshot, pod, status, used, effort).words
    return f"closest: {lack_of(snapshot, pod, status, effort).text}{f'; {words}' if words else ''}"


def remedy_at(
    snapshot: Snapshot, pod: Pod, status: NodeStatus, used: Requests | None, effort: Effort = UNLIMITED
) -> Remedy:
    """What would get the pod admitted by the node of ``status``, by its kubelet and by its totals.

    ``used`` is what other pods request there; None where that is not known. Without a remedy where the scheduler would
    not use the node, or where nothing is known of it. Raises Overspent.
    """
    if not status.is_refusal and status.reason != INSUFFICIENT:
        return Remedy()
    publication = snapshot.publications.get(status.node)
    if publication is None or publication.problem:
        return Remedy()
    state, node = publication.state_with_assumed(effort), snapshot.nodes[status.node]
    ask = None if used is None else partial(ask_with_totals, node, state, used)
    verdict = ask(state, pod) if ask else admit(state, pod, effort)[0]
    if verdict.admitted:
        return Remedy()
    remedy = remedy_of(state, pod, verdict, ask=ask, effort=effort)
    if remedy.ends and used is not None and first_exceeded(node, requests_of(pod), sum_of(dict(used), ONE_POD)):
        return replace(remedy, ends="")  # the totals of the pod that ends are not known here
    return remedy


def _lack_of_kubelet(snapshot: Snapshot, pod: Pod, status: NodeStatus, effort: Effort) -> Lack:
    state = snapshot.publications[status.node].state_with_assumed(effort)
    verdict, _ = admit(state, pod, effort)
    if verdict.admitted:
        return Lack(status.node, "one NUMA node for all of it")
    merge = refused_merge(verdict)
    short = lacking(merge) if merge else lacking_in_all(verdict, pod)
    if not short:
        return Lack(status.node, _resources(cause_of(verdict, state, pod, effort).resources or (status.summary,)))
    words = " and ".join(
        f"{amount_text(trace, missing)} of {amount_text(trace, trace.requested)} {trace.resource}"
        for trace, missing in short
    )
    several = len(short) > 1
    free = "; ".join(f"{f'{trace.resource} ' if several else ''}{free_text(trace)}" for trace, _ in short)
    return Lack(status.node, words, free, sum(missing / trace.requested for trace, missing in short))


def _resources(names: Iterable[str]) -> str:
    return f"free {' and '.join(names)} that fit together"
