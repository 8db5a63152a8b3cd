"""Which pods of lower priority to evict so that a node admits a waiting pod: as few as possible.

kube-scheduler preempts by totals, and never sees a pod that is gated. Owns the choice of node and victims. Leaves which
pods run on a node, and the eviction, to ``reconcile/preemption``.
Source: pkg/scheduler/framework/preemption/preemption.go (pickOneNodeForPreemption, reprieving of victims).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.filters import filter_node, insufficient_resource
from topomend.decide.queue_order import by_most_free_cpus
from topomend.decide.requested_alignment import admission_of
from topomend.model.cluster import Node, WatchedPod
from topomend.model.node_state import emptied
from topomend.model.pod import Pod, requests_of
from topomend.replay.admission import release

MAX_NODES = 10
"""On how many nodes victims are looked for, those with the most CPUs free first."""


@dataclass(frozen=True)
class Preemption:
    """The pods to evict from ``node``; none where it is enough to wait for those that are being deleted."""

    node: str
    victims: tuple[WatchedPod, ...]


def nodes_to_preempt_on(snapshot: Snapshot, pod: WatchedPod) -> tuple[str, ...]:
    """The nodes that would admit the pod if they were empty, at most MAX_NODES."""
    fit, requests = admission_of(pod.pod), requests_of(pod.pod)
    could = (
        name
        for name in by_most_free_cpus(snapshot)
        if not filter_node(snapshot.nodes[name], pod.placement, requests)
        and fit.admits(emptied(snapshot.publications[name].state))
    )
    return tuple(islice(could, MAX_NODES))


def choose_victims(
    snapshot: Snapshot,
    pod: WatchedPod,
    running: Mapping[str, Sequence[WatchedPod]],
    protected: Collection[str] = (),
) -> Preemption | None:
    """The node of ``running`` (its pods, by node) on which the fewest pods have to go; None where that helps nowhere.

    Of equally few, those of the lowest priorities. ``protected`` are the uids of pods that must stay.
    """
    preemptions = _preemptions(snapshot, pod, running, protected)
    return min(preemptions, key=_cost, default=None)


def _preemptions(
    snapshot: Snapshot, pod: WatchedPod, running: Mapping[str, Sequence[WatchedPod]], protected: Collection[str]
) -> Iterator[Preemption]:
    for name, pods in running.items():
        node, publication = snapshot.nodes.get(name), snapshot.publications.get(name)
        if node is not None and publication is not None and not publication.problem:
            staying = [other for other in pods if not other.deleting]
            lower = [other for other in staying if other.priority < pod.priority and other.uid not in protected]
            victims = _victims(lower, _DryRun(node, publication, pod.pod, pods))
            if victims is not None:
                yield Preemption(name, tuple(victims))


def _cost(preemption: Preemption) -> tuple[int, int, int, str]:
    priorities = [victim.priority for victim in preemption.victims]
    return len(priorities), max(priorities, default=0), sum(priorities), preemption.node


def _victims(lower: Iterable[WatchedPod], dry_run: "_DryRun") -> Sequence[WatchedPod] | None:
    """The fewest found: none, else a single one, else what remains of all when each is spared that can be."""
    if dry_run.admits_without(()):
        return ()
    victims = sorted(lower, key=lambda other: (other.priority, other.namespace, other.name))
    if not dry_run.admits_without(victims):
        return None
    for victim in victims:
        if dry_run.admits_without([victim]):
            return [victim]
    for spared in reversed(victims):
        others = [victim for victim in victims if victim is not spared]
        if dry_run.admits_without(others):
            victims = others
    return victims


class _DryRun:
    """Whether one node would admit ``pod`` as others leave it. Those that are being deleted have left."""

    def __init__(self, node: Node, publication: Publication, pod: Pod, running: Iterable[WatchedPod]) -> None:
        self._node, self._pod, self._fit = node, pod, admission_of(pod)
        self._staying = {arriving.uid: requests_of(arriving) for arriving in publication.assumed_pods}
        self._state = publication.state_with_assumed
        for other in running:
            if other.deleting:
                self._state = release(self._state, other.namespace, other.name)
                self._staying.pop(other.uid, None)
            else:
                self._staying[other.uid] = requests_of(other.pod)

    def admits_without(self, victims: Iterable[WatchedPod]) -> bool:
        """Whether the node would admit the pod and has enough in total once ``victims`` have left, too."""
        state, staying = self._state, dict(self._staying)
        for victim in victims:
            state = release(state, victim.namespace, victim.name)
            staying.pop(victim.uid, None)
        return not insufficient_resource(self._node, self._pod, staying.values()) and self._fit.admits(state)
