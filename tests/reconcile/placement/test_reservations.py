"""A pod is assumed on the nodes that are chosen for it, and on none whose totals other pods have used up."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.builders import gated_pod, guaranteed_pod, node, node_state, pod_manifest, refused_pod, snapshot_of
from tests.clock import Clock
from tests.seeds import SEED

from topomend.cache import changes
from topomend.cache.entries import Refusal
from topomend.cache.snapshot import Snapshot
from topomend.decide import gang
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import ExcludedNodes
from topomend.decide.eligibility import Limits
from topomend.kube.client import Reading
from topomend.kube.errors import Unanswered
from topomend.kube.resources import Resource
from topomend.model.pods.pod import requests_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.reconcile.placement.node_pods import FRESH_SECONDS, LIST_BURST, NodePods
from topomend.reconcile.placement.reservations import MAX_LISTS, MAX_OTHERS, MAX_TRIES, MOST_TRIES, Reservations
from topomend.reconcile.store import Store
from topomend.replay.effort import TurnOver
from topomend.runtime.backoff import Backoff

LIST_SECONDS = 0.01
"""How long a list of one node's pods takes on a real API server."""

POD = gated_pod(cpus=3)
FRAGMENTED = [guaranteed_pod("low", 2), guaranteed_pod("high", 2)]
"""Pods that leave three CPUs free, but not on one NUMA node."""


class RunningPods:
    """The API server's answer: pods that share their CPUs with others, by the CPUs that they request."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.cpus: dict[str, int] = {}
        self.listed: list[str] = []
        self.error: Exception | None = None

    def read(
        self, _: Resource, reader: Callable[[dict[str, Any]], Iterable[Any]], *, fields: str, **__: object
    ) -> Reading[Any]:
        if self.error:
            raise self.error
        self.clock.now += LIST_SECONDS
        name = fields.removeprefix("spec.nodeName=").partition(",")[0]
        self.listed.append(name)
        if name not in self.cpus:
            return Reading((), "1")
        burstable = pod_manifest("burstable", f"request:cpu={self.cpus[name]}", namespace="ns", uid=f"x-{name}")
        return Reading(tuple(reader(burstable)), "1")


@pytest.fixture
def running(clock: Clock) -> RunningPods:
    return RunningPods(clock)


@pytest.fixture
def store() -> Store:
    store = Store()
    store.snapshot = snapshot_of(node_state(pods=FRAGMENTED), node_state(name="b"), node_state(name="c"))
    return store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node_pods(running: RunningPods, store: Store, clock: Clock) -> NodePods:
    return NodePods(running, store, clock=clock)  # type: ignore[arg-type]


@pytest.fixture
def reservations(store: Store, node_pods: NodePods, clock: Clock) -> Reservations:
    metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
    return Reservations(store, node_pods, NodeBackoff(Backoff(clock)), metrics, clock=clock, random=Random(SEED))


def choose(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
    return plans.choose(snapshot, POD, None, excluded)


@pytest.fixture
def known(store: Store, node_pods: NodePods, running: RunningPods) -> None:
    """The totals of all nodes are known."""
    for name in store.snapshot.nodes:
        node_pods.list(name)
    running.listed.clear()


def assumed_on(store: Store) -> tuple[str, ...]:
    assumed = store.snapshot.assumed.get(("ns", "p"))
    return assumed.nodes if assumed else ()


def test_a_pod_is_assumed_on_all_nodes_chosen_for_it(reservations: Reservations, store: Store) -> None:
    decision = reservations.choose(POD, choose)
    assert isinstance(decision, plans.RelaunchOn)
    assert assumed_on(store) == decision.nodes == ("b", "c")


def test_the_former_assumption_of_a_pod_does_not_count_against_it(reservations: Reservations, store: Store) -> None:
    store.snapshot = snapshot_of(
        node_state(name="b", pods=[guaranteed_pod("low", 3)])
    )  # room for one pod of three CPUs
    for _ in range(3):
        reservations.choose(POD, choose)
        assert assumed_on(store) == ("b",)


def test_pods_that_want_the_same_node_are_decided_once_each_however_many_workers_decide(
    reservations: Reservations, node_pods: NodePods, store: Store
) -> None:
    store.snapshot = snapshot_of(node_state("numa:2 cores:32 memory:64Gi", name="b"))
    node_pods.list("b")
    decided: list[str] = []

    def work(pod: WatchedPod) -> None:
        def decide(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
            decided.append(pod.name)
            time.sleep(0.01)  # the other workers get their turn
            return plans.choose(snapshot, pod, None, excluded)

        reservations.choose(pod, decide)

    pods = [gated_pod(f"p{number}", cpus=1) for number in range(6)]
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(work, pods))
    assert sorted(decided) == [pod.name for pod in pods]
    assert {name for _, name in store.snapshot.assumed} == set(decided)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(("changes_seen", "nodes"), [(MOST_TRIES - 1, ("b", "c")), (MOST_TRIES, ("c",))])
def test_a_pod_loses_a_node_of_two_only_where_it_changes_all_the_time(
    reservations: Reservations, store: Store, changes_seen: int, nodes: tuple[str, ...]
) -> None:
    tries = 0

    def choose_while_b_changes(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
        nonlocal tries
        tries += 1
        if tries <= changes_seen:
            there = [guaranteed_pod(f"new-{tries}", tries % 2 + 1)]
            store.apply(changes.Published(node_state(name="b", pods=there), str(100 + tries)))
        return choose(snapshot, excluded)

    decision = reservations.choose(POD, choose_while_b_changes)
    assert isinstance(decision, plans.RelaunchOn)
    assert tries == MOST_TRIES
    assert sorted(decision.nodes) == list(nodes)
    assert sorted(assumed_on(store)) == list(nodes)


def test_of_many_nodes_the_few_that_change_all_the_time_are_left_out_at_once(
    reservations: Reservations, node_pods: NodePods, store: Store
) -> None:
    names = [f"n{number}" for number in range(200)]
    store.snapshot = snapshot_of(*(node_state(name=name) for name in names))
    node_pods.list(names[0])
    anywhere = replace(POD, scheduler_rules=("affinity",))
    tries = 0

    def choose_while_one_changes(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
        nonlocal tries
        tries += 1
        there = [guaranteed_pod(f"new-{tries}", tries % 2 + 1)]
        store.apply(changes.Published(node_state(name="n7", pods=there), str(1000 + tries)))
        return plans.choose(snapshot, anywhere, None, excluded)

    decision = reservations.choose(anywhere, choose_while_one_changes)
    assert isinstance(decision, plans.RelaunchOn)
    assert tries == MAX_TRIES
    assert set(names) - set(decision.nodes) == {"n7"}


def test_a_pod_that_waits_gives_its_former_assumption_back(reservations: Reservations, store: Store) -> None:
    reservations.choose(POD, choose)
    for name in ("b", "c"):
        store.apply(changes.Published(node_state(name=name, pods=FRAGMENTED), "9"))
    assert isinstance(reservations.choose(POD, choose), plans.Wait)
    assert assumed_on(store) == ()


def test_a_node_whose_totals_are_used_up_is_left_out_and_the_pod_decided_again(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    running.cpus["b"] = 5
    decision = reservations.choose(POD, choose)
    assert isinstance(decision, plans.RelaunchOn)
    assert assumed_on(store) == decision.nodes == ("c",)
    assert decision.diagnosis.counts()["InsufficientResources"] == 1


def test_a_pod_waits_unassumed_where_the_totals_of_every_node_are_used_up(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    running.cpus |= {"b": 5, "c": 5}
    assert isinstance(reservations.choose(POD, choose), plans.Wait)
    assert assumed_on(store) == ()


def cluster_of(store: Store, running: RunningPods, full: int, with_room: int) -> list[str]:
    """Nodes that are full by totals, which come first by their names, and nodes with room. Returns the full ones."""
    names = [f"full-{number:03}" for number in range(full)]
    store.snapshot = snapshot_of(
        *(node_state(name=name) for name in [*names, *(f"open-{n}" for n in range(with_room))])
    )
    running.cpus |= dict.fromkeys(names, 5)
    return names


def choose_until_placed(reservations: Reservations, pod: WatchedPod, decide: Any = None) -> plans.RelaunchOn:
    """The decision about the pod, which is requeued where its turn ends."""
    while True:
        with suppress(TurnOver):
            decision = reservations.choose(
                pod, decide or (lambda seen, excluded: plans.choose(seen, pod, None, excluded))
            )
            assert isinstance(decision, plans.RelaunchOn)
            return decision


@pytest.mark.parametrize("nodes", [(60, 40), (300, 100)])
def test_a_pod_is_let_go_within_a_second_where_most_nodes_are_full_and_none_is_known(
    reservations: Reservations, store: Store, running: RunningPods, clock: Clock, nodes: tuple[int, int]
) -> None:
    cluster_of(store, running, *nodes)
    began = clock.now
    decision = choose_until_placed(reservations, POD)
    assert decision.nodes[0].startswith("open")
    assert clock.now - began < 1.0
    assert assumed_on(store) == decision.nodes


def test_what_one_decision_learnt_of_nodes_the_next_ones_know(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    full = cluster_of(store, running, 60, 40)
    for number in range(LIST_BURST):
        decision = choose_until_placed(reservations, gated_pod(f"p{number}", cpus=3))
        assert decision.nodes[0] not in full
    assert len(running.listed) == len(set(running.listed))


@pytest.mark.usefixtures("known")
def test_where_the_totals_are_known_nothing_is_listed(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    reservations.choose(POD, choose)
    assert assumed_on(store) == ("b", "c")
    assert running.listed == []


@pytest.mark.parametrize("turns_end", [False, True])
def test_a_decision_that_runs_out_of_its_turn_goes_on_from_what_it_learnt(
    reservations: Reservations, store: Store, running: RunningPods, turns_end: bool
) -> None:
    cluster_of(store, running, 400, 1)
    decisions = turns = 0

    def choose_for_a_turn(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
        nonlocal decisions
        decisions += 1
        if turns_end and decisions % 5 == 0:
            raise TurnOver
        return choose(snapshot, excluded)

    while not assumed_on(store):
        turns += 1
        with suppress(TurnOver):
            reservations.choose(POD, choose_for_a_turn)
    assert assumed_on(store)[0] == "open-0"
    assert len(running.listed) == len(set(running.listed)) <= 401
    assert len(running.listed) <= turns * (MAX_LISTS + MAX_OTHERS)


def test_a_list_that_fails_leaves_nothing_assumed(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    running.error = Unanswered("down")
    with pytest.raises(Unanswered):
        reservations.choose(POD, choose)
    assert not store.snapshot.assumed
    running.error = None
    assert isinstance(reservations.choose(POD, choose), plans.RelaunchOn)


def test_a_better_node_that_is_not_known_is_listed_while_there_are_tokens(
    reservations: Reservations, store: Store, node_pods: NodePods, running: RunningPods
) -> None:
    node_pods.list("c")
    assert reservations.choose(POD, choose).reason.startswith("b ")
    assert running.listed == ["c", "b"]
    store.snapshot = snapshot_of(node_state(name="b"), node_state(name="c"))
    node_pods.list("c")
    while node_pods.may_list():
        pass
    running.listed.clear()
    assert reservations.choose(POD, choose).reason.startswith("c ")
    assert running.listed == []


def test_full_nodes_are_listed_again_one_a_second_for_pods_that_wait(
    reservations: Reservations, node_pods: NodePods, store: Store, running: RunningPods, clock: Clock
) -> None:
    """A pod that is deleted without grace shows in no watch."""
    full = cluster_of(store, running, 20, 0)
    assert isinstance(reservations.choose(POD, choose), plans.Wait)
    assert assumed_on(store) == ()
    while node_pods.may_list():
        pass
    running.listed.clear()
    del running.cpus[full[3]]
    clock.now += FRESH_SECONDS
    began = clock.now
    while full[3] not in running.listed:
        node_pods.list_doubtful()
        clock.now += 0.25
        assert len(running.listed) <= clock.now - began + 1 + FRESH_SECONDS
    assert choose_until_placed(reservations, POD).nodes == (full[3],)


def test_a_node_that_is_too_small_even_when_empty_is_not_listed_for_pods_that_wait(
    reservations: Reservations, node_pods: NodePods, store: Store, running: RunningPods, clock: Clock
) -> None:
    store.snapshot = snapshot_of(node_state(name="b"), node_state(name="small"))
    store.apply(changes.NodeUpdated(node("small", cpus=2)))
    running.cpus["b"] = 5
    assert isinstance(reservations.choose(POD, choose), plans.Wait)
    running.listed.clear()
    for _ in range(10):
        clock.now += FRESH_SECONDS
        node_pods.list_doubtful()
    assert running.listed == ["b"] * 10


def group_of(pods: int) -> list[WatchedPod]:
    return [gated_pod(f"g{number}", cpus=3) for number in range(pods)]


def place_group(reservations: Reservations, pods: list[WatchedPod]) -> tuple[gang.Placed, ...] | gang.Unplaced:
    """The decision about a group, which is tried again where it is not finished."""

    def decide(snapshot: Snapshot, excluded: Mapping[str, ExcludedNodes]) -> tuple[gang.Placed, ...] | gang.Unplaced:
        return gang.choose_for_all(snapshot, pods, (), excluded)

    while (decision := reservations.choose_for_all(pods, decide)) is None:
        pass
    return decision


@pytest.mark.parametrize("nodes", [(60, 40), (300, 100)])
def test_a_group_is_let_go_where_most_nodes_are_full_and_none_is_known(
    reservations: Reservations, store: Store, running: RunningPods, clock: Clock, nodes: tuple[int, int]
) -> None:
    cluster_of(store, running, *nodes)
    pods, began = group_of(6), clock.now
    decision = place_group(reservations, pods)
    assert isinstance(decision, tuple)
    assert all(placed.node.startswith("open") for placed in decision)
    assert {name for _, name in store.snapshot.assumed} == {pod.name for pod in pods}
    assert clock.now - began < 1.0


def test_pods_of_a_group_count_against_the_totals_of_their_nodes(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    """By replay two pods of two CPUs fit one node: by totals one of them does."""
    store.snapshot = snapshot_of(node_state(name="b"), node_state(name="c"))
    running.cpus |= {"b": 4, "c": 4}
    room = store.snapshot.nodes["b"].allocatable["cpu"] // 1000 - 4
    pods = [gated_pod(f"g{number}", cpus=2) for number in range(3)]
    assert room < 2 * requests_of(pods[0].pod)["cpu"] // 1000
    decision = place_group(reservations, pods[:2])
    assert isinstance(decision, tuple)
    assert {placed.node for placed in decision} == {"b", "c"}
    assert isinstance(place_group(reservations, pods[2:]), gang.Unplaced)


def test_a_replacement_is_assumed_before_it_has_a_uid(reservations: Reservations, store: Store) -> None:
    plan = reservations.plan(Refusal(refused_pod(), "5", 10.0), Limits())
    assert isinstance(plan, plans.RelaunchOn)
    assert assumed_on(store) == plan.nodes
    assert store.snapshot.assumed["ns", "p"].pod.uid == ""


def test_a_pod_that_is_left_alone_is_not_assumed(reservations: Reservations, store: Store) -> None:
    plan = reservations.plan(Refusal(refused_pod(mirror=True), "5", 10.0), Limits())
    assert isinstance(plan, plans.LeaveAlone)
    assert assumed_on(store) == ()
