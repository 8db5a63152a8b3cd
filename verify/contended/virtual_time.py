"""The steered run in virtual time: the operator's own snapshot and decisions in a simulated cluster.

It shows in seconds what takes real kubelets an hour: what happens to one pod in ten thousand. Kubelets admit by replay.
Each part of the cluster takes a random time, at most as long as measured on real parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Any, cast

from verify.contended.arrivals import MACHINES, Arrival
from verify.contended.outcome import Outcome, Stay
from verify.contended.timeline import Timeline

from topomend.cache import changes
from topomend.decide.plan import RelaunchOn, Yield, choose_in_order
from topomend.kube.client import Client, Reading
from topomend.model.nodes.node import HOSTNAME_LABEL, Node
from topomend.model.nodes.node_state import NodeState, free_cpus
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.gated_pods import MAX_YIELDS, YIELD_SECONDS
from topomend.reconcile.gated.reservation_turns import ReservationTurns
from topomend.reconcile.store import Store
from topomend.replay.admission import admit, release
from topomend.sandbox import NodeSpec
from topomend.wire.group import FIT_GATE
from topomend.wire.pods.pod import read_pod

BINDS, ADMITS, STARTS = (0.003, 0.1), (0.003, 0.1), (0.25, 0.5)
"""Least and most seconds: the scheduler binds a pod, its kubelet admits it, its containers start."""

FREES, REPORTS = (0.8, 1.8), (0.0, 0.2)
"""After a pod's end: until its kubelet reuses its resources, and from then until it reports the end."""

READS, PUBLISHES = (0.0, 0.75), (0.01, 0.1)
"""After a change on a node: until its agent reads it, and from then until the agent has published it."""


REFRESH_SECONDS, TICK_SECONDS = 0.5, 10.0
"""How often the operator decides for whom to reserve NUMA nodes, and how often here while pods wait and nothing else
happens: then it matters only that a pod becomes patient, or that a turn ends."""

Watch = Callable[[float, NodeState], None]
"""Is shown the state of a kubelet, and when it is in this state."""


def unwatched(now: float, state: NodeState) -> None:
    """Nobody watches."""


def state_of(spec: NodeSpec) -> NodeState:
    """A node without pods."""
    return NodeState(spec.name, spec.machine, spec.kubelet, spec.devices)


class _NoPodLasts:
    """The API server's answer to who of a node's pods does not end by itself: all arrivals do."""

    def read(self, *_: Any, **__: Any) -> Reading[str]:
        return Reading((), "1")


class VirtualCluster:
    """Kubelets, arriving pods, and the operator: a simulation of discrete events."""

    def __init__(
        self,
        arrivals: Sequence[Arrival],
        chance: Random,
        machines: Sequence[NodeSpec] = MACHINES,
        watch: Watch = unwatched,
    ) -> None:
        self._time, self._chance, self._watch = Timeline(chance), chance, watch
        self._stays = [Stay(arrival, arrival.at) for arrival in arrivals]
        self._versions, self._store = count(1), Store()
        client = cast("Client", _NoPodLasts())
        self._turns = ReservationTurns(client, self._store, lambda _: True, lambda: self._time.now)
        self._kubelets: dict[str, NodeState] = {}
        self._unread: set[str] = set()
        self._yields: dict[int, int] = {}
        self._gated: dict[int, WatchedPod] = {}
        self._refreshed, self._planned, self._ticks = -inf, -inf, False
        for spec in machines:
            self._add_node(state_of(spec))
        for number, arrival in enumerate(arrivals):
            self._time.at(arrival.at, partial(self._arrives, number))

    def run(self) -> Outcome:
        """Run until no event is left."""
        while event := self._time.next():
            self._see(changes.TimePassed(self._time.now))
            event()
            self._refresh()
            while self._ungate_some():
                pass  # a pod that yielded may be next now
        return Outcome("virtual time", self._stays)

    def _add_node(self, state: NodeState) -> None:
        cpus = 1000 * (sum(free_cpus(state).values()) + 1)
        room = {"cpu": cpus, "memory": 1 << 60, "pods": 110_000}
        room |= {device.resource: 1_000_000 for device in state.devices}
        self._show(state)
        self._see(changes.NodeUpdated(Node(state.name, labels={HOSTNAME_LABEL: state.name}, allocatable=room)))
        self._see(changes.Published(state, self._version()))

    def _show(self, state: NodeState) -> None:
        self._kubelets[state.name] = state
        self._watch(self._time.now, state)

    def _see(self, change: changes.Change) -> None:
        self._store.apply(change)

    def _version(self) -> str:
        return str(next(self._versions))

    def _refresh(self) -> None:
        """Decide for whom to reserve NUMA nodes, if it is time; else have an event when it is."""
        due = self._refreshed + REFRESH_SECONDS
        if self._time.now >= due:
            self._refreshed = self._time.now
            self._turns.refresh()
        elif self._gated and self._planned < due:
            self._planned = due
            self._time.at(due, lambda: None)

    def _tick(self) -> None:
        """Look again later: a turn may end, and a pod becomes patient, where nothing else happens."""
        self._ticks = bool(self._gated)
        if self._ticks:
            self._time.at(self._time.now + TICK_SECONDS, self._tick)

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
        self._see(changes.PodUpdated(pod, self._time.now))
        if not self._ticks:
            self._tick()

    def _ungate_some(self) -> bool:
        before = len(self._gated)
        for number in sorted(self._gated):
            pod = self._gated[number]
            may_yield = self._yields.get(number, 0) < MAX_YIELDS
            choice = choose_in_order(
                self._store.snapshot, pod, self._turns.reservations(), yields=may_yield, surveys=self._store.surveys
            )
            if isinstance(choice, Yield):
                self._yields[number] = self._yields.get(number, 0) + 1
                self._time.at(self._time.now + YIELD_SECONDS, lambda: None)
            elif isinstance(choice, RelaunchOn):
                ungated = replace(self._gated.pop(number), gates=(), version=self._version())
                self._see(changes.PodAssumed(pod.pod, choice.nodes, self._time.now))
                self._see(changes.PodUpdated(ungated, self._time.now))
                self._time.after(BINDS, partial(self._is_bound, number, replace(ungated, node=choice.nodes[0])))
        return len(self._gated) < before

    def _is_bound(self, number: int, pod: WatchedPod) -> None:
        self._see(changes.PodUpdated(replace(pod, version=self._version(), phase="Pending"), self._time.now))
        self._time.after(ADMITS, partial(self._is_admitted, number, pod))

    def _is_admitted(self, number: int, pod: WatchedPod) -> None:
        verdict, after = admit(self._kubelets[pod.node], pod.pod)
        if not verdict.admitted:
            self._stays[number].refused += 1
            self._see(changes.PodRemoved(pod.namespace, pod.name, pod.uid, self._time.now))
            return
        self._changes(pod.node, after)
        self._time.after(STARTS, partial(self._runs, number, pod))

    def _runs(self, number: int, pod: WatchedPod) -> None:
        stay = self._stays[number]
        stay.ran, stay.ended = self._time.now, self._time.now + stay.arrival.seconds
        self._see(changes.PodRemoved(pod.namespace, pod.name, pod.uid, self._time.now))
        self._time.at(stay.ended + self._chance.uniform(*FREES), partial(self._is_freed, pod))

    def _is_freed(self, pod: WatchedPod) -> None:
        self._changes(pod.node, release(self._kubelets[pod.node], pod.namespace, pod.name))
        self._time.after(REPORTS, partial(self._has_ended, pod))

    def _has_ended(self, pod: WatchedPod) -> None:
        self._see(changes.PodUpdated(replace(pod, version=self._version(), phase="Succeeded"), self._time.now))

    def _changes(self, node: str, state: NodeState) -> None:
        self._show(state)
        if node not in self._unread:
            self._unread.add(node)
            self._time.after(READS, partial(self._is_read, node))

    def _is_read(self, node: str) -> None:
        self._time.after(PUBLISHES, partial(self._is_published, node, self._kubelets[node]))

    def _is_published(self, node: str, state: NodeState) -> None:
        self._unread.remove(node)
        self._see(changes.Published(state, self._version()))
        if self._kubelets[node] is not state:
            self._changes(node, self._kubelets[node])
