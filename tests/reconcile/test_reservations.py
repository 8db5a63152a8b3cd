"""A pod is assumed on the nodes that are chosen for it, and on none whose totals other pods have used up."""

from dataclasses import replace
from typing import Any

import pytest
from tests.decide.test_plan import asking, refused, state, view_of

from topomend.cache import changes
from topomend.cache.snapshot import Refusal, Snapshot
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits
from topomend.decide.feasibility import ExcludedNodes
from topomend.kube.client import Listing, Resource
from topomend.model.cluster import WatchedPod
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.node_backoff import NodeBackoff
from topomend.reconcile.node_pods import NodePods
from topomend.reconcile.reservations import Reservations
from topomend.reconcile.store import Store
from topomend.runtime.backoff import Backoff

POD = WatchedPod("ns", "p", "p", "5", asking(3), gates=("topomend.io/fit",))


class RunningPods:
    """The API server's answer: pods that share their CPUs with others, by the CPUs that they request."""

    def __init__(self) -> None:
        self.cpus: dict[str, int] = {}

    def list(self, _: Resource, *, fields: str, cached: bool) -> Listing:
        assert cached
        name = fields.removeprefix("spec.nodeName=").partition(",")[0]
        return Listing((_pod(self.cpus[name]),) if name in self.cpus else (), "1")


def _pod(cpus: int) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": f"{cpus}"}}}
    return {"metadata": {"namespace": "ns", "name": "burstable", "uid": "x"}, "spec": {"containers": [container]}}


@pytest.fixture
def running() -> RunningPods:
    return RunningPods()


@pytest.fixture
def store() -> Store:
    store = Store()
    store.snapshot = view_of(state("a", 2, 2), state("b"), state("c"))
    return store


@pytest.fixture
def reservations(store: Store, running: RunningPods) -> Reservations:
    metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
    node_pods = NodePods(running, lambda: 10.0)  # type: ignore[arg-type]
    return Reservations(store, node_pods, NodeBackoff(Backoff(lambda: 10.0)), metrics, lambda: 10.0)


def choose(snapshot: Snapshot, excluded: ExcludedNodes) -> plans.RelaunchOn | plans.Wait:
    return plans.choose(snapshot, POD, None, excluded)


def assumed_on(store: Store) -> tuple[str, ...]:
    assumed = store.snapshot.assumed.get(("ns", "p"))
    return assumed.nodes if assumed else ()


def test_a_pod_is_assumed_on_all_nodes_chosen_for_it(reservations: Reservations, store: Store) -> None:
    decision = reservations.choose(POD, choose)
    assert isinstance(decision, plans.RelaunchOn)
    assert assumed_on(store) == decision.nodes == ("b", "c")


def test_its_former_assumption_does_not_count_against_it(reservations: Reservations, store: Store) -> None:
    store.snapshot = view_of(state("b", 3))  # room for one pod of three CPUs
    for _ in range(3):
        reservations.choose(POD, choose)
        assert assumed_on(store) == ("b",)


def test_a_pod_that_waits_gives_its_former_assumption_back(reservations: Reservations, store: Store) -> None:
    reservations.choose(POD, choose)
    for name in ("b", "c"):
        store.apply(changes.Published(state(name, 2, 2), "9"))
    assert isinstance(reservations.choose(POD, choose), plans.Wait)
    assert assumed_on(store) == ()


def test_a_node_whose_totals_are_used_up_is_decided_again_without(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    running.cpus["b"] = 5
    decision = reservations.choose(POD, choose)
    assert isinstance(decision, plans.RelaunchOn)
    assert assumed_on(store) == decision.nodes == ("c",)
    assert decision.diagnosis.counts()["InsufficientResources"] == 1


def test_where_every_node_is_used_up_the_pod_waits_and_none_is_assumed(
    reservations: Reservations, store: Store, running: RunningPods
) -> None:
    running.cpus |= {"b": 5, "c": 5}
    assert isinstance(reservations.choose(POD, choose), plans.Wait)
    assert assumed_on(store) == ()


def test_a_replacement_is_assumed_before_it_has_a_uid(reservations: Reservations, store: Store) -> None:
    plan = reservations.plan(Refusal(refused(), "5", 10.0), Limits())
    assert isinstance(plan, plans.RelaunchOn)
    assert assumed_on(store) == plan.nodes
    assert store.snapshot.assumed["ns", "p"].pod.uid == ""


def test_a_pod_that_is_left_alone_is_not_assumed(reservations: Reservations, store: Store) -> None:
    plan = reservations.plan(Refusal(replace(refused(), mirror=True), "5", 10.0), Limits())
    assert isinstance(plan, plans.LeaveAlone)
    assert assumed_on(store) == ()
