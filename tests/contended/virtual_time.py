"""The steered run in virtual time: the operator's own view and decisions, and a cluster whose parts take random times.

Tells in seconds what real kubelets would take an hour for: what happens to one pod in ten thousand. Nothing of the
cluster is real here but the replay that its kubelets admit by, and nobody takes longer than real parts were seen to.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

from tests.contended.arrivals import MACHINES, Arrival
from tests.contended.outcome import Outcome, Stay

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.plan import RelaunchOn, Yield, choose_in_order
from topomend.model.cluster import HOSTNAME_LABEL, Node, WatchedPod
from topomend.model.node_state import NodeState, free_cpus
from topomend.reconcile.gated_pods import MAX_YIELDS, YIELD_SECONDS
from topomend.replay.admission import admit, release
from topomend.wire.group import FIT_GATE
from topomend.wire.pod import read_pod

BINDS, ADMITS, STARTS = (0.003, 0.1), (0.003, 0.1), (0.25, 0.5)
"""Between how many seconds the scheduler takes to bind a pod, its kubelet to admit it, and its containers to start."""

FREES, TELLS = (0.8, 1.8), (0.0, 0.2)
"""After a pod's end: until its kubelet gives what it held to others, and from then until it tells the API server."""

LOOKS, WRITES = (0.0, 0.75), (0.01, 0.1)
"""From a change on a node until its agent sees it, and from then until that is published."""


class VirtualCluster:
    """Machines, pods that arrive there, and the operator, whose moments are dealt with one after another."""

    def __init__(self, arrivals: Sequence[Arrival], chance: Random) -> None:
        self._chance, self._now = chance, 0.0
        self._stays = [Stay(arrival, arrival.at) for arrival in arrivals]
        self._moments: list[tuple[float, int, Callable[[], None]]] = []
        self._count, self._versions = count(), count(1)
        self._snapshot = Snapshot()
        self._kubelets: dict[str, NodeState] = {}
        self._looks: set[str] = set()
        self._gave_way: dict[int, int] = {}
        self._gated: dict[int, WatchedPod] = {}
        for spec in MACHINES:
            self._add_node(NodeState(spec.name, spec.machine, spec.kubelet, spec.devices))
        for number, arrival in enumerate(arrivals):
            self._at(arrival.at, partial(self._arrives, number))

    def run(self) -> Outcome:
        """Every pod's fate once nothing happens any more."""
        while self._moments:
            self._now, _, happens = heapq.heappop(self._moments)
            self._see(changes.TimePassed(self._now))
            happens()
            while self._let_some_go():
                pass  # other NUMA nodes may be kept for others now
        return Outcome("virtual time", self._stays)

    def _add_node(self, state: NodeState) -> None:
        cpus = 1000 * (sum(free_cpus(state).values()) + 1)
        room = {"cpu": cpus, "memory": 1 << 50, "pods": 110_000}
        room |= {device.resource: 1_000_000 for device in state.devices}
        self._kubelets[state.name] = state
        self._see(changes.NodeUpdated(Node(state.name, labels={HOSTNAME_LABEL: state.name}, allocatable=room)))
        self._see(changes.Published(state, self._version()))

    def _at(self, time: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._moments, (time, next(self._count), happens))

    def _after(self, between: tuple[float, float], happens: Callable[[], None]) -> None:
        self._at(self._now + self._chance.uniform(*between), happens)

    def _see(self, event: changes.Change) -> None:
        self._snapshot = changes.apply(self._snapshot, event)

    def _version(self) -> str:
        return str(next(self._versions))

    def _arrives(self, number: int) -> None:
        arrival = self._stays[number].arrival
        metadata = {"name": arrival.name, "namespace": "default", "uid": arrival.name}
        pod = WatchedPod(
            namespace="default",
            name=arrival.name,
            uid=arrival.name,
            version=self._version(),
            pod=read_pod({**arrival.manifest, "metadata": metadata}),
            gates=(FIT_GATE,),
            creation_time=f"{1_000_000 + arrival.at:014.3f}",
        )
        self._gated[number] = pod
        self._see(changes.PodUpdated(pod, self._now))

    def _let_some_go(self) -> bool:
        before = len(self._gated)
        for number in sorted(self._gated):
            pod = self._gated[number]
            yields = self._gave_way.get(number, 0) < MAX_YIELDS
            choice = choose_in_order(self._snapshot, pod, self._now, yields=yields)
            if isinstance(choice, Yield):
                self._gave_way[number] = self._gave_way.get(number, 0) + 1
                self._at(self._now + YIELD_SECONDS, lambda: None)
            elif isinstance(choice, RelaunchOn):
                free = replace(self._gated.pop(number), gates=(), version=self._version())
                self._see(changes.PodAssumed(pod.pod, choice.nodes, self._now))
                self._see(changes.PodUpdated(free, self._now))
                self._after(BINDS, partial(self._is_bound, number, replace(free, node=choice.nodes[0])))
        return len(self._gated) < before

    def _is_bound(self, number: int, pod: WatchedPod) -> None:
        self._see(changes.PodUpdated(replace(pod, version=self._version(), phase="Pending"), self._now))
        self._after(ADMITS, partial(self._is_admitted, number, pod))

    def _is_admitted(self, number: int, pod: WatchedPod) -> None:
        verdict, after = admit(self._kubelets[pod.node], pod.pod)
        if not verdict.admitted:
            self._stays[number].refused += 1
            self._see(changes.PodRemoved(pod.namespace, pod.name, pod.uid, self._now))
            return
        self._changes(pod.node, after)
        self._after(STARTS, partial(self._runs, number, pod))

    def _runs(self, number: int, pod: WatchedPod) -> None:
        stay = self._stays[number]
        stay.ran, stay.ended = self._now, self._now + stay.arrival.seconds
        self._see(changes.PodRemoved(pod.namespace, pod.name, pod.uid, self._now))
        self._at(stay.ended + self._chance.uniform(*FREES), partial(self._is_freed, pod))

    def _is_freed(self, pod: WatchedPod) -> None:
        self._changes(pod.node, release(self._kubelets[pod.node], pod.namespace, pod.name))
        self._after(TELLS, partial(self._has_ended, pod))

    def _has_ended(self, pod: WatchedPod) -> None:
        self._see(changes.PodUpdated(replace(pod, version=self._version(), phase="Succeeded"), self._now))

    def _changes(self, node: str, state: NodeState) -> None:
        self._kubelets[node] = state
        if node not in self._looks:
            self._looks.add(node)
            self._after(LOOKS, partial(self._is_looked_at, node))

    def _is_looked_at(self, node: str) -> None:
        self._after(WRITES, partial(self._is_published, node, self._kubelets[node]))

    def _is_published(self, node: str, seen: NodeState) -> None:
        self._looks.remove(node)
        self._see(changes.Published(seen, self._version()))
        if self._kubelets[node] is not seen:
            self._changes(node, self._kubelets[node])
