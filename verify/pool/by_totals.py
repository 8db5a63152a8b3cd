"""The plain scheduler in virtual time: it places by totals, and a kubelet refuses what it cannot align.

Its filter is that of the sums, its score LeastAllocated or MostAllocated over CPUs (the other resources are asked for
in proportion), and of equal nodes it draws one. A refused pod is created anew, as by a Job, after the same time each
time. The parts take as long as in the steered run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from verify.contended.arrivals import Arrival
from verify.contended.outcome import Outcome, Stay
from verify.contended.timeline import Timeline
from verify.contended.virtual_time import ADMITS, BINDS, FREES, REPORTS, STARTS, Watch, state_of

from topomend.decide.diagnosis.filters import too_little_left
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState, free_cpus
from topomend.model.pods.pod import ONE_POD, requests_of, sum_of
from topomend.replay.admission import admit, release
from topomend.replay.fast_path.capacity import free_amounts
from topomend.sandbox import NodeSpec
from topomend.wire.pods.pod import read_pod

RECREATED = (10.0, 10.0)
"""Seconds until a refused pod is there again: as long as a Job waits after a first failure."""

Prefer = Callable[[float], float]
"""The score of a node by the part of its CPUs that is requested; the highest is best."""


def least_allocated(requested: float) -> float:
    """As of the default profile."""
    return 1 - requested


def most_allocated(requested: float) -> float:
    """As of a profile that packs."""
    return requested


class ByTotals:
    """A cluster of which the scheduler sees sums alone. ``used`` are the requests of the pods on each node."""

    def __init__(
        self,
        arrivals: Sequence[Arrival],
        chance: Random,
        machines: Sequence[NodeSpec],
        prefer: Prefer,
        watch: Watch,
    ) -> None:
        self._time, self._chance, self._prefer, self._watch = Timeline(chance), chance, prefer, watch
        self._stays = [Stay(arrival, arrival.at) for arrival in arrivals]
        self._pods = [read_pod({**a.manifest, "metadata": {"name": a.name, "namespace": "default"}}) for a in arrivals]
        self._kubelets: dict[str, NodeState] = {}
        self._nodes: dict[str, Node] = {}
        self._pending: list[int] = []
        for spec in machines:
            self._add_node(state_of(spec))
        for number, arrival in enumerate(arrivals):
            self._time.at(arrival.at, partial(self._comes, number))

    def run(self) -> Outcome:
        """Run until no event is left."""
        while event := self._time.next():
            event()
        return Outcome("by totals", self._stays)

    def _add_node(self, state: NodeState) -> None:
        allocatable = {resource: 1000 * free for resource, (free, _) in free_amounts(state).items()}
        memory = sum(node.memory for node in state.machine.numa_nodes)
        room = {"cpu": 1000 * sum(free_cpus(state).values()), "memory": 1000 * memory, "pods": 110_000}
        self._nodes[state.name] = Node(state.name, allocatable=allocatable | room, used={})
        self._show(state)

    def _show(self, state: NodeState) -> None:
        self._kubelets[state.name] = state
        self._watch(self._time.now, state)

    def _comes(self, number: int) -> None:
        self._pending.append(number)
        self._schedule()

    def _schedule(self) -> None:
        """Try all that wait, in the order in which they came or came again."""
        for number in list(self._pending):
            requests = requests_of(self._pods[number])
            fitting = [node for node in self._nodes.values() if not too_little_left(node, requests, node.used or {})]
            if fitting:
                self._pending.remove(number)
                name = max(fitting, key=lambda node: (self._score(node), self._chance.random())).name
                self._count(name, number, 1)
                self._time.after(BINDS, partial(self._time.after, ADMITS, partial(self._is_admitted, number, name)))

    def _score(self, node: Node) -> float:
        return self._prefer((node.used or {}).get("cpu", 0) / node.allocatable["cpu"])

    def _count(self, name: str, number: int, sign: int) -> None:
        node = self._nodes[name]
        requests: Mapping[str, int] = sum_of(requests_of(self._pods[number]), ONE_POD)
        used = sum_of(node.used or {}, {resource: sign * amount for resource, amount in requests.items()})
        self._nodes[name] = replace(node, used=used)

    def _is_admitted(self, number: int, node: str) -> None:
        verdict, after = admit(self._kubelets[node], self._pods[number])
        if verdict.admitted:
            self._show(after)
            self._time.after(STARTS, partial(self._runs, number, node))
            return
        self._stays[number].refused += 1
        self._time.after(RECREATED, partial(self._comes, number))
        self._leaves(number, node)

    def _runs(self, number: int, node: str) -> None:
        stay = self._stays[number]
        stay.ran, stay.ended = self._time.now, self._time.now + stay.arrival.seconds
        self._time.at(stay.ended + self._chance.uniform(*FREES), partial(self._is_freed, number, node))

    def _is_freed(self, number: int, node: str) -> None:
        pod = self._pods[number]
        self._show(release(self._kubelets[node], pod.namespace, pod.name))
        self._time.after(REPORTS, partial(self._leaves, number, node))

    def _leaves(self, number: int, node: str) -> None:
        self._count(node, number, -1)
        self._schedule()
