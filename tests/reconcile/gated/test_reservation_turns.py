"""Reservations last a turn, are for pods that the operator gated, and only where the pods in the way will end."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import running
from tests.clusters import NODE_A, Cluster, pod
from tests.reconcile.parts import EMPTY_A, Parts
from tests.refused_pods import gated
from tests.waiting import eventually

from topomend.cache import changes
from topomend.decide.queue.order import PATIENCE_SECONDS
from topomend.kube.client import Resource
from topomend.model.cluster import WatchedPod
from topomend.reconcile.gated.reservation_turns import (
    LISTED_SECONDS,
    NAMESPACE_REST_SECONDS,
    RESTS,
    RETRY_SECONDS,
    TURN_SECONDS,
    ReservationTurns,
)
from topomend.wire.pod import read_pod

pytestmark = pytest.mark.cluster

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
    for content in two_nodes.client.list(REPLICA_SETS).items:
        two_nodes.client.delete(REPLICA_SETS, content["metadata"]["name"], "default", uid=content["metadata"]["uid"])
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


def test_nothing_is_reserved_where_a_service_is_in_the_way(cluster: Cluster) -> None:
    turns = Turns(cluster, *replicas(cluster))
    turns.turns.refresh()
    assert turns.holders() == []
    (replica_set,) = cluster.client.list(REPLICA_SETS).items
    cluster.client.delete(REPLICA_SETS, "web", "default", uid=replica_set["metadata"]["uid"])
    eventually(
        "the replicas to be gone", lambda: [content["metadata"]["name"] for content in cluster.pods()] == ["wide"]
    )
    turns.clock.now += max(LISTED_SECONDS, RETRY_SECONDS)
    turns.turns.refresh()
    assert turns.holders() == ["wide"]


def test_nothing_is_reserved_for_a_gate_that_a_user_wrote(cluster: Cluster) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    turns.ours = False
    turns.turns.refresh()
    assert turns.holders() == []
    turns.ours = True
    turns.clock.now += RETRY_SECONDS
    turns.turns.refresh()
    assert turns.holders() == ["wide"]


def test_who_leads_again_reserves_anew(cluster: Cluster) -> None:
    turns = Turns(cluster, *bare_pods(cluster))
    turns.turns.refresh()
    turns.turns.take_over()
    assert turns.holders() == []
    turns.turns.refresh()
    assert turns.holders() == ["wide"]
