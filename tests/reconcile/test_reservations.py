"""A pod is assumed on the nodes that are chosen for it, and on none whose totals other pods have used up."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod, guaranteed_pod, node_state, pod_manifest, refused_pod, snapshot_of
from tests.clock import Clock

from topomend.cache import changes
from topomend.cache.snapshot import Refusal, Snapshot
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits
from topomend.decide.feasibility import ExcludedNodes
from topomend.kube.client import Reading, Resource
from topomend.model.cluster import WatchedPod
from topomend.model.pod import Pod
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.node_backoff import NodeBackoff
from topomend.reconcile.node_pods import NodePods
from topomend.reconcile.reservations import MAX_TRIES, MOST_TRIES, Reservations
from topomend.reconcile.store import Store
from topomend.runtime.backoff import Backoff

POD = gated_pod(cpus=3)
FRAGMENTED = [guaranteed_pod("low", 2), guaranteed_pod("high", 2)]
"""Pods that leave three CPUs free, but not on one NUMA node."""


class RunningPods:
    """The API server's answer: pods that share their CPUs with others, by the CPUs that they request."""

    def __init__(self) -> None:
        self.cpus: dict[str, int] = {}

    def read(
        self, _: Resource, reader: Callable[[dict[str, Any]], tuple[Pod]], *, fields: str, cached: bool
    ) -> Reading[Pod]:
        assert cached
        name = fields.removeprefix("spec.nodeName=").partition(",")[0]
        if name not in self.cpus:
            return Reading((), "1")
        burstable = pod_manifest("burstable", f"request:cpu={self.cpus[name]}", namespace="ns", uid="x")
        return Reading(reader(burstable), "1")


@pytest.fixture
def running() -> RunningPods:
    return RunningPods()


@pytest.fixture
def store() -> Store:
    store = Store()
    store.snapshot = snapshot_of(node_state(pods=FRAGMENTED), node_state(name="b"), node_state(name="c"))
    return store


@pytest.fixture
def reservations(store: Store, running: RunningPods) -> Reservations:
    metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
    clock = Clock()
    node_pods = NodePods(running, clock)  # type: ignore[arg-type]
    return Reservations(store, node_pods, NodeBackoff(Backoff(clock)), metrics, clock)


def choose(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
    return plans.choose(snapshot, POD, None, excluded)


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
    reservations: Reservations, store: Store
) -> None:
    store.snapshot = snapshot_of(node_state("numa:2 cores:32 memory:64Gi", name="b"))
    decided: list[str] = []

    def work(pod: WatchedPod) -> None:
        def decide(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
            decided.append(pod.name)
            time.sleep(0.01)  # the other workers get their turn
            return plans.choose(snapshot, pod, None, excluded)

        reservations.choose(pod, decide)

    pods = [gated_pod(f"p{number}", cpus=1) for number in range(8)]
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(work, pods))
    assert sorted(decided) == [pod.name for pod in pods]
    assert {name for _, name in store.snapshot.assumed} == set(decided)


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
    reservations: Reservations, store: Store
) -> None:
    names = [f"n{number}" for number in range(200)]
    store.snapshot = snapshot_of(*(node_state(name=name) for name in names))
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


def test_a_replacement_is_assumed_before_it_has_a_uid(reservations: Reservations, store: Store) -> None:
    plan = reservations.plan(Refusal(refused_pod(), "5", 10.0), Limits())
    assert isinstance(plan, plans.RelaunchOn)
    assert assumed_on(store) == plan.nodes
    assert store.snapshot.assumed["ns", "p"].pod.uid == ""


def test_a_pod_that_is_left_alone_is_not_assumed(reservations: Reservations, store: Store) -> None:
    plan = reservations.plan(Refusal(refused_pod(mirror=True), "5", 10.0), Limits())
    assert isinstance(plan, plans.LeaveAlone)
    assert assumed_on(store) == ()
