"""What if the kubelets had another policy or scope, or a pool more nodes: the cluster's pods once more, on empty nodes.

Every node whose state is known is emptied. Each pod that has a node is asked of that node's kubelet, by replay and by
the node's totals, in the order given. Then those that were refused, and after them those without a node, each go to the
best node that admits them, by ``feasibility``: as topomend relaunches and steers them. Owns the simulation. Leaves
which pods there are, and in which order they came, to its callers.

It is of the same pods, and no forecast: it knows no pod that has ended or is to come, and of the scheduler only the
filters of ``filters``.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from topomend.alignment.requested import places_by_container
from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.filters import filter_node, too_little_left
from topomend.decide.diagnosis.node_status import Question
from topomend.decide.diagnosis.survey import Surveys
from topomend.decide.diagnosis.totals import Requests
from topomend.decide.pools.fragmentation import counts
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.nodes.node_pool import pools_of
from topomend.model.nodes.node_state import NodeState, emptied
from topomend.model.pods.pod import Pod, is_extended, requests_of, sum_of, usage_of
from topomend.model.pods.scheduling import Placement
from topomend.replay.admission import admit, release, start_refusal
from topomend.replay.lifecycle.predicate import CPU, MEMORY, OUT_OF

Settled = Callable[[], None]
"""Is told of each pod when it is known what becomes of it: thousands may take a minute."""

MOST_KINDS = 256
"""For how many kinds of pods every node's answer is remembered. Of 1,000 nodes one takes 0.3 MiB."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod to ask about. ``node`` is where it was bound; empty for one that waits.

    ``of_each_node``: its DaemonSet or a file has one like it on every node, so that it goes nowhere else.
    """

    pod: Pod
    placement: Placement = field(default_factory=Placement)
    node: str = ""
    of_each_node: bool = False


@dataclass(frozen=True)
class Settings:
    """The Topology Manager's settings of all kubelets. An empty one is each kubelet's own."""

    policy: str = ""
    scope: str = ""

    def of(self, state: NodeState) -> NodeState:
        """The node with these settings."""
        kubelet = state.kubelet
        policy = self.policy or kubelet.topology_manager_policy
        scope = self.scope or kubelet.topology_manager_scope
        return replace(state, kubelet=replace(kubelet, topology_manager_policy=policy, topology_manager_scope=scope))


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that the kubelet of its node would refuse, for the kubelet's ``reason``.

    ``elsewhere`` is the node that would take it instead; empty without one.
    """

    arrival: Arrival
    reason: str
    elsewhere: str = ""


@dataclass(frozen=True)
class Outcome:
    """What becomes of the pods: ``admitted`` on their own nodes, or without one on the best.

    ``nodes``: how many nodes were asked. ``waiting``: the pods without a node that none admits. Of all pods that run,
    those ``refused`` and running elsewhere among them, ``exclusive`` have exclusive CPUs or devices, ``aligned`` have
    those of each container on one NUMA node, and ``together`` have all on one. ``not_started``: the error of each
    kubelet that would not start.
    """

    nodes: int
    admitted: int
    refused: tuple[Refused, ...]
    waiting: tuple[Arrival, ...]
    exclusive: int
    aligned: int
    together: int
    not_started: Mapping[str, str]


def is_asked(snapshot: Snapshot, node: str) -> bool:
    """Whether the node can be asked: it is there, and its state is known."""
    return node in snapshot.nodes and not snapshot.why_unknown(node)


def unheard() -> None:
    """Nobody asks how far a simulation is."""


def what_if(
    snapshot: Snapshot,
    arrivals: Iterable[Arrival],
    settings: Settings,
    uncounted: Iterable[Arrival] = (),
    settled: Settled = unheard,
) -> Outcome:
    """What becomes of these pods, in this order. Each of those with a node has one that ``is_asked``.

    The pods ``uncounted`` are there first and in no figure.
    """
    run = Run(snapshot, settings)
    for arrival in uncounted:
        run.ask(arrival.node, arrival.pod, counted=False)
    refused: list[Refused] = []
    unbound: list[Arrival] = []
    for arrival in arrivals:
        if not arrival.node:
            unbound.append(arrival)
        elif reason := run.ask(arrival.node, arrival.pod):
            refused.append(Refused(arrival, reason))
        else:
            settled()

    def placed(arrival: Arrival) -> str:
        node = "" if arrival.node and arrival.of_each_node else run.place(arrival)
        settled()
        return node

    refused = [replace(each, elsewhere=placed(each.arrival)) for each in refused]
    return outcome_of(run, refused, [arrival for arrival in unbound if not placed(arrival)])


def outcome_of(run: "Run", refused: Sequence[Refused], waiting: Sequence[Arrival]) -> Outcome:
    """What has become of the pods of a simulation: these were refused by their own nodes, and these still wait."""
    tally, elsewhere = run.tally, sum(bool(each.elsewhere) for each in refused)
    return Outcome(
        len(run.states),
        tally.running - elsewhere,
        tuple(refused),
        tuple(waiting),
        tally.exclusive,
        tally.aligned,
        tally.together,
        run.not_started,
    )


@dataclass(frozen=True)
class Grown:
    """A cluster with more nodes, called ``names``. ``own`` are the pods that each of them has from its beginning."""

    snapshot: Snapshot
    names: Sequence[str]
    own: Sequence[Arrival]


def with_added(snapshot: Snapshot, arrivals: Iterable[Arrival], pool: str, number: int) -> Grown | None:
    """The cluster with so many more nodes in the pool; None where it has no node to copy.

    Each is a copy of the pool's first node that is Ready, takes pods and has a known state. It has the pods of that
    node that are ``of_each_node``, and no other.
    """
    pool_of = pools_of(snapshot.nodes.values())
    model = next((name for name in sorted(snapshot.nodes) if pool_of[name] == pool and counts(snapshot, name)), None)
    if model is None:
        return None
    free = (name for count in itertools.count(1) if (name := f"{pool}-new-{count}") not in snapshot.nodes)
    names = list(itertools.islice(free, number))
    on_model = [arrival for arrival in arrivals if arrival.of_each_node and arrival.node == model]
    node, state = snapshot.nodes[model], snapshot.publications[model].state
    nodes = {name: replace(node, name=name, labels={**node.labels, HOSTNAME_LABEL: name}) for name in names}
    published = {name: Publication(replace(state, name=name), "") for name in names}
    return Grown(
        replace(snapshot, nodes={**snapshot.nodes, **nodes}, publications={**snapshot.publications, **published}),
        names,
        [replace(arrival, node=name) for name in names for arrival in on_model],
    )


@dataclass
class _Tally:
    """How many pods run, and how many of them as ``Outcome`` counts them."""

    running: int = 0
    exclusive: int = 0
    aligned: int = 0
    together: int = 0

    def add(self, after: NodeState, pod: Pod) -> None:
        """Count a pod that the node ``after`` holds."""
        self.running += 1
        masks = [places.numa_nodes for places in places_by_container(after, pod).values()]
        if masks:
            self.exclusive += 1
            self.aligned += all(mask.bit_count() <= 1 for mask in masks)
            self.together += reduce(or_, masks).bit_count() <= 1


class Run:
    """One simulation. ``states`` are those of the nodes that are asked, with the pods that they have admitted."""

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self._snapshot, self._surveys = snapshot, Surveys(MOST_KINDS)
        self._used: dict[str, Requests] = {}
        self.tally = _Tally()
        asked = [name for name in snapshot.nodes if is_asked(snapshot, name)]
        self.states = {name: settings.of(emptied(snapshot.publications[name].state)) for name in asked}
        errors = {name: start_refusal(state) for name, state in self.states.items()}
        self.not_started = {name: error for name, error in errors.items() if error is not None}
        self._changed = set(asked)

    def ask(self, node: str, pod: Pod, *, counted: bool = True) -> str:
        """Admit the pod, or the reason why the node's kubelet refuses it."""
        verdict, after = admit(self.states[node], pod)
        if not verdict.admitted:
            return verdict.reason
        used = self._used.get(node, {})
        if lacking := too_little_left(self._snapshot.nodes[node], self._counted(node, pod), used):
            return f"{OUT_OF}{lacking}"
        self.states[node] = after
        self._changed.add(node)
        self._used[node] = sum_of(used, usage_of(pod))
        if counted:
            self.tally.add(after, pod)
        return ""

    def end(self, node: str, pod: Pod) -> None:
        """Have a pod end that the node has admitted."""
        self.states[node] = release(self.states[node], pod.namespace, pod.name)
        self._changed.add(node)
        ended = usage_of(pod)
        self._used[node] = {name: amount - ended.get(name, 0) for name, amount in self._used[node].items()}

    def _counted(self, node: str, pod: Pod) -> Requests:
        """What the kubelet compares with the node's totals, in its order: no extended resource that the node lacks.

        Source: pkg/kubelet/lifecycle/predicate.go:removeMissingExtendedResources.
        """
        asked, there = requests_of(pod), self._snapshot.nodes[node].allocatable
        known = {name: amount for name, amount in asked.items() if name in there or not is_extended(name)}
        return {name: known[name] for name in dict.fromkeys((CPU, MEMORY, *known)) if name in known}

    def place(self, arrival: Arrival) -> str:
        """Admit the pod on the best node; empty where none admits it."""
        candidates = diagnose(self._current(), arrival.pod, arrival.placement, surveys=self._surveys).candidates
        if not candidates or self.ask(candidates[0].node, arrival.pod):
            return ""
        return candidates[0].node

    def place_on(self, node: str, question: Question) -> bool:
        """Admit the pod that is asked about on this node where topomend would; returns whether it is there."""
        if filter_node(self._snapshot.nodes[node], question.placement, question.requests):
            return False
        return question.fit.admits(self.states[node]) and not self.ask(node, question.fit.pod)

    def _current(self) -> Snapshot:
        """The cluster as it is now. A node that has not changed is the same object, and is not asked again."""
        before = self._snapshot
        nodes = {name: replace(before.nodes[name], used=self._used.get(name, {})) for name in self._changed}
        publications = {name: Publication(self.states[name], "") for name in self._changed}
        self._snapshot = replace(
            before, nodes={**before.nodes, **nodes}, publications={**before.publications, **publications}
        )
        self._changed.clear()
        return self._snapshot
