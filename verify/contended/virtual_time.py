"""The steered run in virtual time: the operator's own snapshot and decisions in a simulated cluster.

It shows in seconds what takes real kubelets an hour: what happens to one pod in ten thousand. Kubelets admit by replay.
Each part of the cluster takes a random time, at most as long as measured on real parts.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

from verify.contended.arrivals import MACHINES, Arrival
from verify.contended.outcome import Outcome, Stay

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.plan import RelaunchOn, Yield, choose_in_order
from topomend.decide.queue import order as queue_order
from topomend.decide.survey import Surveys
from topomend.model.cluster import HOSTNAME_LABEL, Node, WatchedPod
from topomend.model.node_state import NodeState, emptied, free_cpus
from topomend.reconcile.gated.gated_pods import MAX_YIELDS, YIELD_SECONDS
from topomend.replay.admission import admit, release
from topomend.wire.group import FIT_GATE
from topomend.wire.pod import read_pod

BINDS, ADMITS, STARTS = (0.003, 0.1), (0.003, 0.1), (0.25, 0.5)
"""Least and most seconds: the scheduler binds a pod, its kubelet admits it, its containers start."""

FREES, REPORTS = (0.8, 1.8), (0.0, 0.2)
"""After a pod's end: until its kubelet reuses its resources, and from then until it reports the end."""

READS, PUBLISHES = (0.0, 0.75), (0.01, 0.1)
"""After a change on a node: until its agent reads it, and from then until the agent has published it."""


class VirtualCluster:
    """Kubelets, arriving pods, and the operator: a simulation of discrete events."""

    def __init__(self, arrivals: Sequence[Arrival], chance: Random) -> None:
        self._chance, self._now = chance, 0.0
        self._stays = [Stay(arrival, arrival.at) for arrival in arrivals]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count, self._versions = count(), count(1)
        self._snapshot, self._surveys = Snapshot(), Surveys()
        self._kubelets: dict[str, NodeState] = {}
        self._unread: set[str] = set()
        self._yields: dict[int, int] = {}
        self._gated: dict[int, WatchedPod] = {}
        for spec in MACHINES:
            self._add_node(NodeState(spec.name, spec.machine, spec.kubelet, spec.devices))
        for number, arrival in enumerate(arrivals):
            self._at(arrival.at, partial(self._arrives, number))

    def run(self) -> Outcome:
        """Run until no event is left."""
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            self._see(changes.TimePassed(self._now))
            event()
            while self._ungate_some():
                pass  # other NUMA nodes may be reserved for other pods now
        return Outcome("virtual time", self._stays)

    def _add_node(self, state: NodeState) -> None:
        cpus = 1000 * (sum(free_cpus(state).values()) + 1)
        room = {"cpu": cpus, "memory": 1 << 50, "pods": 110_000}
        room |= {device.resource: 1_000_000 for device in state.devices}
        self._kubelets[state.name] = state
        self._see(changes.NodeUpdated(Node(state.name, labels={HOSTNAME_LABEL: state.name}, allocatable=room)))
        self._see(changes.Published(state, self._version()))

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._count), event))

    def _after(self, delay: tuple[float, float], event: Callable[[], None]) -> None:
        self._at(self._now + self._chance.uniform(*delay), event)

    def _see(self, change: changes.Change) -> None:
        self._snapshot = changes.apply(self._snapshot, change)

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

    def _ungate_some(self) -> bool:
        before = len(self._gated)
        patient = queue_order.patient_pods(self._snapshot, self._now)
        reservations = queue_order.reserve(self._snapshot, patient, self._emptied).reservations
        for number in sorted(self._gated):
            pod = self._gated[number]
            may_yield = self._yields.get(number, 0) < MAX_YIELDS
            choice = choose_in_order(self._snapshot, pod, reservations, yields=may_yield, surveys=self._surveys)
            if isinstance(choice, Yield):
                self._yields[number] = self._yields.get(number, 0) + 1
                self._at(self._now + YIELD_SECONDS, lambda: None)
            elif isinstance(choice, RelaunchOn):
                ungated = replace(self._gated.pop(number), gates=(), version=self._version())
                self._see(changes.PodAssumed(pod.pod, choice.nodes, self._now))
                self._see(changes.PodUpdated(ungated, self._now))
                self._after(BINDS, partial(self._is_bound, number, replace(ungated, node=choice.nodes[0])))
        return len(self._gated) < before

    def _emptied(self, name: str) -> NodeState:
        """The node once its pods have ended, as all of them will."""
        return emptied(self._snapshot.publications[name].state)

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
        self._after(REPORTS, partial(self._has_ended, pod))

    def _has_ended(self, pod: WatchedPod) -> None:
        self._see(changes.PodUpdated(replace(pod, version=self._version(), phase="Succeeded"), self._now))

    def _changes(self, node: str, state: NodeState) -> None:
        self._kubelets[node] = state
        if node not in self._unread:
            self._unread.add(node)
            self._after(READS, partial(self._is_read, node))

    def _is_read(self, node: str) -> None:
        self._after(PUBLISHES, partial(self._is_published, node, self._kubelets[node]))

    def _is_published(self, node: str, state: NodeState) -> None:
        self._unread.remove(node)
        self._see(changes.Published(state, self._version()))
        if self._kubelets[node] is not state:
            self._changes(node, self._kubelets[node])
