"""Reservations last a turn, are for pods that the operator gated, and only where the pods in the way will end."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod, guaranteed_pod, node_state, running, snapshot_of
from tests.clock import Clock
from tests.clusters import COLLECTOR_SECONDS, NODE_A, Cluster, pod
from tests.reconcile.parts import EMPTY_A, Parts
from tests.refused_pods import gated
from tests.waiting import eventually

from topomend.cache import changes
from topomend.decide.queue.order import PATIENCE_SECONDS
from topomend.kube.client import Reading
from topomend.kube.errors import NotFound, Unanswered
from topomend.kube.resources import Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.reservation_turns import (
    LISTED_SECONDS,
    NAMESPACE_REST_SECONDS,
    RESTS,
    RETRY_SECONDS,
    TURN_SECONDS,
    ReservationTurns,
)
from topomend.reconcile.store import Store
from topomend.wire.pods.pod import read_pod

REPLICA_SETS = Resource("apps/v1", "replicasets")


class Turns(Parts):
    """A wide pod has waited with patience for the first node."""

    def __init__(self, cluster: Cluster, *in_the_way: dict[str, Any]) -> None:
        super().__init__(cluster, running(EMPTY_A, *(read_pod(content) for content in in_the_way)))
        self.ours = True
        self.turns = ReservationTurns(cluster.client, self.store, lambda _: self.ours, self.clock)
        self.wide = self.waits(cluster, "wide", "2026-01-01T00:00:00Z")

    def waits(self, cluster: Cluster, name: str, created: str) -> WatchedPod:
        waiting = replace(gated(cluster, name, 4), creation_time=created)
        self.watch(waiting)
        self.clock.now += PATIENCE_SECONDS
        return waiting

    def holders(self) -> list[str]:
        return [reservation.pod.name for reservation in self.turns.reservations()]


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    yield two_nodes
    for content in two_nodes.client.list(REPLICA_SETS, namespace="default").items:
        with suppress(NotFound):  # one of a Deployment of another test, which the garbage collector deletes
            uid = content["metadata"]["uid"]
            two_nodes.client.delete(REPLICA_SETS, content["metadata"]["name"], "default", uid=uid)
    two_nodes.remove_all()


def bare_pods(cluster: Cluster) -> list[dict[str, Any]]:
    return [cluster.create(pod(f"bare-{number}", 1, node=NODE_A)) for number in range(2)]


def replicas(cluster: Cluster) -> list[dict[str, Any]]:
    """Two pods of a ReplicaSet, one for each NUMA node."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("", 3, node=NODE_A)["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    content = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec}
    cluster.client.create(REPLICA_SETS, content, "default")
    return eventually("both replicas", lambda: made if len(made := list(cluster.pods())) == 2 else None)


@pytest.mark.cluster
def test_a_turn_ends_the_place_is_free_and_the_next_turn_comes_after_a_rest(cluster: Cluster) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    assert not turns.turns.refresh()
    assert turns.holders() == ["wide"]
    turns.clock.now += TURN_SECONDS - 1
    assert not turns.turns.refresh()
    assert turns.holders() == ["wide"]
    for count in (1, 2):
        turns.clock.now += TURN_SECONDS
        assert turns.turns.refresh(), "somebody may have the place now"
        assert turns.holders() == []
        turns.clock.now += RESTS.seconds(count) - 1
        assert not turns.turns.refresh()
        assert turns.holders() == []
        turns.clock.now += 1
        turns.turns.refresh()
        assert turns.holders() == ["wide"]


@pytest.mark.cluster
def test_a_pod_that_rests_lets_one_of_another_namespace_have_a_turn_and_then_the_next_of_its_own(
    cluster: Cluster,
) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    turns.turns.refresh()
    following = turns.waits(cluster, "next", "2026-01-01T00:00:01Z")
    turns.clock.now += TURN_SECONDS
    turns.turns.refresh()
    assert turns.holders() == []
    other = replace(following, uid="other", namespace="other", name="other")
    turns.watch(other)
    turns.clock.now += PATIENCE_SECONDS
    turns.turns.refresh()
    assert turns.holders() == ["other"]
    turns.apply(changes.PodRemoved("other", "other", "other", turns.clock.now))
    turns.clock.now += NAMESPACE_REST_SECONDS
    turns.turns.refresh()
    assert turns.holders() == ["next"]


@pytest.mark.cluster
def test_a_namespace_that_creates_its_pods_anew_keeps_places_no_longer(cluster: Cluster) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    kept = 0.0
    for number in range(20):
        turns.apply(changes.PodRemoved("default", turns.wide.name, turns.wide.uid, turns.clock.now))
        turns.wide = turns.waits(cluster, f"wide-{number}", "2026-01-01T00:00:00Z")
        turns.turns.refresh()
        kept += TURN_SECONDS / 5 if turns.holders() else 0
        turns.clock.now += TURN_SECONDS / 5
        turns.turns.refresh()
    assert TURN_SECONDS <= kept <= 2.4 * TURN_SECONDS, "of four turns' time"


@pytest.mark.cluster
def test_a_namespace_whose_pods_get_their_places_does_not_rest(cluster: Cluster) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    for number in range(5):
        turns.turns.refresh()
        assert turns.holders() == [turns.wide.name]
        turns.clock.now += TURN_SECONDS / 2
        turns.apply(changes.PodAssumed(turns.wide.pod, (NODE_A,), turns.clock.now))
        turns.turns.refresh()
        turns.apply(changes.PodForgotten("default", turns.wide.name))
        turns.apply(changes.PodRemoved("default", turns.wide.name, turns.wide.uid, turns.clock.now))
        turns.wide = turns.waits(cluster, f"wide-{number}", "2026-01-01T00:00:00Z")


@pytest.mark.cluster
def test_nothing_is_reserved_where_a_service_is_in_the_way(cluster: Cluster) -> None:
    turns = Turns(cluster, *replicas(cluster))
    turns.turns.refresh()
    assert turns.holders() == []
    (replica_set,) = cluster.client.list(REPLICA_SETS).items
    cluster.client.delete(REPLICA_SETS, "web", "default", uid=replica_set["metadata"]["uid"])
    eventually(
        "the replicas to be gone",
        lambda: [content["metadata"]["name"] for content in cluster.pods()] == ["wide"],
        COLLECTOR_SECONDS,
    )
    turns.clock.now += max(LISTED_SECONDS, RETRY_SECONDS)
    turns.turns.refresh()
    assert turns.holders() == ["wide"]


@pytest.mark.cluster
def test_nothing_is_reserved_for_a_gate_that_a_user_wrote(cluster: Cluster) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    turns.ours = False
    turns.turns.refresh()
    assert turns.holders() == []
    turns.ours = True
    turns.clock.now += RETRY_SECONDS
    turns.turns.refresh()
    assert turns.holders() == ["wide"]


@pytest.mark.cluster
def test_who_leads_again_reserves_anew(cluster: Cluster) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    turns.turns.refresh()
    turns.turns.take_over()
    assert turns.holders() == []
    turns.turns.refresh()
    assert turns.holders() == ["wide"]


class NoPods:
    """An API server whose nodes have no pods that will not end. ``meanwhile`` is called while it lists them."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None

    def read(self, _: Resource, __: Callable[[dict[str, Any]], Iterable[Any]], **___: object) -> Reading[Any]:
        self.meanwhile()
        return Reading((), "7")


@pytest.fixture
def api() -> NoPods:
    return NoPods()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reserving(api: NoPods, clock: Clock) -> ReservationTurns:
    """A NUMA node is reserved for a wide pod, and the pods in the way are to be listed again."""
    store = Store()
    full = running(node_state("numa:2 cores:4"), guaranteed_pod("low", 2), guaranteed_pod("high", 2))
    store.snapshot = snapshot_of(full, pods=[gated_pod("wide", 4)])
    turns = ReservationTurns(api, store, lambda _: True, clock)  # type: ignore[arg-type]
    turns.refresh()
    clock.now += LISTED_SECONDS
    return turns


def test_a_numa_node_stays_reserved_while_the_pods_in_the_way_are_listed_again(
    reserving: ReservationTurns, api: NoPods
) -> None:
    before = reserving.reservations()
    assert [reservation.pod.name for reservation in before] == ["wide"]
    meanwhile: list[object] = []
    api.meanwhile = lambda: meanwhile.append(reserving.reservations())
    reserving.refresh()
    assert meanwhile == [before]


def test_nothing_is_reserved_while_the_pods_in_the_way_cannot_be_listed(
    reserving: ReservationTurns, api: NoPods
) -> None:
    def fail() -> None:
        raise Unanswered("away")

    api.meanwhile = fail
    with pytest.raises(Unanswered):
        reserving.refresh()
    assert reserving.reservations() == ()
    api.meanwhile = lambda: None
    reserving.refresh()
    assert [reservation.pod.name for reservation in reserving.reservations()] == ["wide"]
