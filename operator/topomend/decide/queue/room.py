"""The fewest pods whose end makes room for a pod: advice for people, who end or evict them.

The answer is exact: every smaller set of pods was tried, by totals and by replay, or ruled out. Owns the search. Leaves
who may be evicted at all, and whose eviction a budget forbids, to whoever read the pods, and what the operator evicts
itself to ``victims``, which has the scheduler's order and must keep the place.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import TYPE_CHECKING, TypeAlias

from topomend.alignment.requested import admission_of, aligned_numa_nodes
from topomend.cache.snapshot import Snapshot
from topomend.decide.budgets import Budget
from topomend.decide.diagnosis.filters import filter_node, first_exceeded
from topomend.model.bitmask import NUMAMask
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState, emptied
from topomend.model.pods.pod import ONE_POD, Pod, requests_of
from topomend.model.pods.scheduling import Placement
from topomend.model.quantity import MilliQuantity
from topomend.replay.admission import admit, each_alone, release
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.gates import read_gates

if TYPE_CHECKING:  # what a command does without
    from topomend.decide.diagnosis.totals import Requests

MOST_TRIES = 20_000
"""How many sets of pods are tried by replay in all. Beyond, the answer may not be the fewest, and says so."""

_OFFSET = 1 << 31
"""Added to each priority before they are summed, so that the sum grows with the number of pods."""


@dataclass(frozen=True)
class Occupant:
    """A pod that is bound to a node.

    ``usage``: what it takes of the node's totals (``usage_of``). ``owner``: its controller as ``Kind/name``; without
    one nobody creates the pod again. ``stays``: why it is not to be evicted; empty where it may be.
    ``leaving``: it is being deleted.
    """

    namespace: str
    name: str
    uid: str
    priority: int
    usage: "Requests"
    owner: str = ""
    stays: str = ""
    leaving: bool = False

    @property
    def shown(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Occupied:
    """The pods of each node by its name, and the budgets of all that have any."""

    by_node: Mapping[str, Sequence[Occupant]]
    budgets: Sequence[Budget] = ()


@dataclass(frozen=True)
class Candidate:
    """A node that may admit the pod once some pods have ended, and its state."""

    node: Node
    state: NodeState


@dataclass(frozen=True)
class Room:
    """``node`` admits the pod once ``pods`` have ended, and ``leaving``, which are being deleted, too.

    ``numa_nodes``: where it will be, 0 where it is aligned to nothing. ``is_fewest``: no smaller set was left untried.
    """

    node: str
    pods: tuple[Occupant, ...]
    leaving: tuple[Occupant, ...]
    numa_nodes: NUMAMask
    is_fewest: bool = True


class Tries:
    """How many sets may still be tried by replay: ``MOST_TRIES`` at first."""

    def __init__(self) -> None:
        self._left = MOST_TRIES

    @property
    def were_enough(self) -> bool:
        """Whether every set that was to be tried could be."""
        return self._left >= 0

    def take(self) -> bool:
        """Whether one more may be."""
        self._left -= 1
        return self.were_enough


def make_room(
    snapshot: Snapshot, pod: Pod, placement: Placement, occupied: Occupied, nodes: Iterable[str] = ()
) -> Room | None:
    """The fewest pods on one of ``nodes``, by default of all, whose end lets it admit ``pod``; None where no node does.

    Of as few, those with the lowest priority; then those that somebody creates again. Nodes whose state is unknown
    are passed over.
    """
    return room_on(candidates(snapshot, pod, placement, nodes), pod, occupied)


def candidates(snapshot: Snapshot, pod: Pod, placement: Placement, nodes: Iterable[str] = ()) -> list[Candidate]:
    """Those of ``nodes``, by default of all, that may admit the pod once some pods have ended, by their names.

    Without any pod a kubelet admits each container that it admits beside some. That it aligns the pod by chance, where
    its policy asks for no alignment, may take others on its NUMA nodes.
    """
    containers, requests, found = _Containers(pod), requests_of(pod), list[Candidate]()
    for name in sorted(nodes or snapshot.nodes):
        node, publication = snapshot.nodes[name], snapshot.publications.get(name)
        if publication is None or publication.problem or filter_node(node, placement, requests):
            continue
        if containers.are_admitted(emptied(publication.state)):
            found.append(Candidate(node, publication.state))
    return found


class _Containers:
    """The pod's containers, asked about one by one; the answers for equal nodes are kept."""

    def __init__(self, pod: Pod) -> None:
        self._pod, self._fits = pod, dict[str, list[FastAdmission]]()

    def are_admitted(self, state: NodeState) -> bool:
        """Whether the node admits each of them alone."""
        pods = each_alone(self._pod, read_gates(state.kubelet))
        quality = pods[0].qos_class if pods else ""  # the pod's, which depends on the node's release
        if quality not in self._fits:
            self._fits[quality] = [FastAdmission(pod) for pod in pods]
        return all(fit.admits(state) for fit in self._fits[quality])


def room_on(among: Iterable[Candidate], pod: Pod, occupied: Occupied, tries: Tries | None = None) -> Room | None:
    """As ``make_room``, on one of these nodes. None where ``tries`` were not enough says nothing."""
    aligned = admission_of(pod)
    hosts = [
        _Host(each.node, each.state, aligned, occupied.by_node.get(each.node.name, ()), occupied.budgets)
        for each in among
    ]
    tries, most = tries or Tries(), max((len(host.movable) for host in hosts), default=0)
    for number in range(most + 1):
        best = _best_of(hosts, number, tries)
        if best is not None:
            host, pods = best
            return host.room(pods, is_fewest=tries.were_enough)
        if not tries.were_enough:
            return _any_room(hosts)
    return None


def _best_of(hosts: Sequence["_Host"], number: int, tries: Tries) -> tuple["_Host", Sequence[Occupant]] | None:
    """The host and the pods that are least to be missed of all sets of this size."""
    best: tuple[_Host, Sequence[Occupant]] | None = None
    least: _Cost | None = None
    for host in hosts:
        for pods in host.sets_of(number):
            if not host.leaves_enough(pods):
                continue
            cost = _cost(host, pods)
            if (least is None or cost < least) and host.may_leave_together(pods):
                if not tries.take():
                    return best
                if host.admits_without(pods):
                    best, least = (host, pods), cost
    return best


def _any_room(hosts: Sequence["_Host"]) -> Room | None:
    """A set that cannot do without any of its pods, the smallest of those of all nodes; None without one."""
    found = [(host, pods) for host in hosts if (pods := host.irreducible()) is not None]
    if not found:
        return None
    host, pods = min(found, key=lambda each: _cost(*each))
    return host.room(pods, is_fewest=False)


_Cost: TypeAlias = tuple[int, int, int, int, int]


def _cost(host: "_Host", pods: Sequence[Occupant]) -> _Cost:
    """The number, the highest priority, the sum, how many nobody creates again, and how many are to be waited for."""
    priorities = [pod.priority for pod in pods]
    lost = sum(not pod.owner for pod in pods)
    highest, together = max(priorities, default=0), sum(priority + _OFFSET for priority in priorities)
    return len(pods), highest, together, lost, len(host.leaving)


class _Host:
    """One node with its pods. ``movable`` are those that may be evicted and hold something that the pod needs."""

    def __init__(
        self, node: Node, state: NodeState, fit: FastAdmission, occupants: Sequence[Occupant], budgets: Sequence[Budget]
    ) -> None:
        self._node, self._fit, self._budgets = node, fit, budgets
        self.leaving = tuple(occupant for occupant in occupants if occupant.leaving)
        self._state = _without(state, self.leaving)
        remaining = [occupant for occupant in occupants if not occupant.leaving]
        self._deficits = _deficits(node, requests_of(fit.pod), remaining)
        self.movable = sorted(
            (occupant for occupant in remaining if not occupant.stays and self._is_in_the_way(occupant)),
            key=lambda occupant: (occupant.priority, not occupant.owner, occupant.shown),
        )
        self._least = self._least_by_totals()

    def sets_of(self, number: int) -> Iterator[tuple[Occupant, ...]]:
        """The sets of so many pods, unimportant ones first; none where totals alone ask for more."""
        return combinations(self.movable, number) if number >= self._least else iter(())

    def may_leave_together(self, pods: Collection[Occupant]) -> bool:
        """Whether the budgets allow all of them to leave."""
        uids = {pod.uid for pod in pods}
        return all(len(uids & budget.pods) <= max(0, budget.allowed) for budget in self._budgets)

    def leaves_enough(self, pods: Collection[Occupant]) -> bool:
        """Whether enough is left in total for the pod once they have ended."""
        for resource, deficit in self._deficits.items():
            if sum([pod.usage.get(resource, 0) for pod in pods]) < deficit:
                return False
        return True

    def admits_without(self, pods: Sequence[Occupant]) -> bool:
        """Whether the kubelet would admit the pod, aligned as it asks, once they have ended."""
        return self._fit.admits(_without(self._state, pods))

    def irreducible(self) -> Sequence[Occupant] | None:
        """All that may leave together, but those without whose end the node admits the pod just so."""
        chosen: list[Occupant] = []
        for occupant in self.movable:
            if self.may_leave_together([*chosen, occupant]):
                chosen.append(occupant)
        if not (self.leaves_enough(chosen) and self.admits_without(chosen)):
            return None
        for spared in reversed(tuple(chosen)):
            others = [occupant for occupant in chosen if occupant is not spared]
            if self.leaves_enough(others) and self.admits_without(others):
                chosen = others
        return chosen

    def room(self, pods: Sequence[Occupant], *, is_fewest: bool) -> Room:
        """The answer for these pods, which make room."""
        pod = self._fit.pod
        _, after = admit(_without(self._state, pods), pod)
        return Room(self._node.name, tuple(pods), self.leaving, aligned_numa_nodes(after, pod), is_fewest)

    def _is_in_the_way(self, occupant: Occupant) -> bool:
        """Whether its end could change an answer: it holds something exclusively, or takes of what is lacking."""
        takes_what_lacks = not self._deficits.keys().isdisjoint(occupant.usage)
        return takes_what_lacks or self._state.holds(occupant.namespace, occupant.name)

    def _least_by_totals(self) -> int:
        """How many pods have to end at least for the totals, were they always those that take most."""
        least = 0
        for resource, deficit in self._deficits.items():
            amounts = sorted((pod.usage.get(resource, 0) for pod in self.movable), reverse=True)
            enough = (number for number, freed in enumerate(accumulate(amounts), 1) if freed >= deficit)
            least = max(least, next(enough, len(amounts) + 1))
        return least


def _deficits(node: Node, asked: "Requests", occupants: Collection[Occupant]) -> dict[str, MilliQuantity]:
    """By how much the node has too little in total for the pod beside ``occupants``, of each resource that lacks."""
    wanted = {**asked, **ONE_POD}
    used = {resource: sum([occupant.usage.get(resource, 0) for occupant in occupants]) for resource in wanted}
    return {
        resource: used[resource] + amount - node.allocatable.get(resource, 0)
        for resource, amount in wanted.items()
        if first_exceeded(node, {resource: amount}, {resource: used[resource]})
    }


def _without(state: NodeState, pods: Sequence[Occupant]) -> NodeState:
    for pod in pods:
        if state.holds(pod.namespace, pod.name):
            state = release(state, pod.namespace, pod.name)
    return state
