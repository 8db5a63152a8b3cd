"""A place that is held for a gated pod, beside a real kube-scheduler that would give it to others."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.clusters import NODE_B, Cluster, pod, priority_class
from tests.reconcile.parts import EMPTY_B, Parts
from tests.refused_pods import gated, watched
from tests.waiting import eventually

from topomend.cache import changes
from topomend.decide.queue.victims import Preemption
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.held_places import HeldPlaces
from topomend.reconcile.object_faults import ObjectFaults

pytestmark = pytest.mark.cluster

SECONDS = 30.0


class Holding(Parts):
    """Gated pods of high priority beside these parts."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, EMPTY_B)
        self.cluster = cluster
        faults = ObjectFaults(logging.getLogger(__name__), "no place is held for it", self.clock)
        self.places = HeldPlaces(cluster.client, self.store, faults, self.clock)

    def hold(self, pod: WatchedPod) -> bool:
        return self.places.hold(pod, Preemption(NODE_B, ()), self.clock.now + SECONDS)

    def nominated(self, name: str) -> str:
        return watched(self.cluster, name).nominated


@pytest.fixture
def holding(two_nodes: Cluster) -> Iterator[Holding]:
    with ExitStack() as stack:
        stack.enter_context(priority_class(two_nodes, "before-others", 1000))
        yield Holding(two_nodes)
        two_nodes.remove_all()


def _urgent(cluster: Cluster, cpus: int = 4) -> WatchedPod:
    return gated(cluster, "urgent", cpus, spec={"priorityClassName": "before-others"})


def test_kube_scheduler_gives_the_totals_to_no_other_pod_until_the_place_is_given_up(
    holding: Holding, two_nodes: Cluster
) -> None:
    """Seven CPUs may be requested on the node, four are kept for a pod that is gated."""
    urgent = _urgent(two_nodes)
    holding.watch(urgent)
    assert holding.hold(urgent)
    eventually("the nomination", lambda: holding.nominated("urgent") == NODE_B)
    for name, cpus in (("other", 4), ("later", 3)):
        content = pod(name, cpus)
        content["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_B}
        two_nodes.create(content)
        eventually("the scheduler to have tried", lambda: _is_tried(watched(two_nodes, name)))  # noqa: B023
    assert watched(two_nodes, "later").node, "what is not kept"
    assert not watched(two_nodes, "other").node
    two_nodes.remove(two_nodes.get("later"))
    holding.clock.now += SECONDS
    holding.watch(watched(two_nodes, "urgent"))
    holding.places.give_up()
    assert holding.places.reservations() == ()
    eventually("it to be bound", lambda: watched(two_nodes, "other").node)


def _is_tried(pod: WatchedPod) -> bool:
    return pod.unschedulable or bool(pod.node)


def test_a_nomination_that_was_just_taken_back_does_not_count(holding: Holding, two_nodes: Cluster) -> None:
    """The snapshot shows it for a moment. Without it kube-scheduler would give the place to others."""
    urgent = _urgent(two_nodes)
    holding.watch(urgent)
    assert holding.hold(urgent)
    nominated = watched(two_nodes, "urgent")
    holding.watch(nominated)
    assert holding.hold(nominated), "it is held for longer"
    holding.places.give_up_for(nominated)
    holding.places.give_up()
    assert holding.nominated("urgent") == ""
    assert not holding.hold(nominated)
    assert holding.hold(watched(two_nodes, "urgent"))
    assert holding.nominated("urgent") == NODE_B


def test_a_place_is_given_up_when_its_pod_is_no_longer_gated_or_the_time_is_over(
    holding: Holding, two_nodes: Cluster
) -> None:
    urgent = _urgent(two_nodes)
    holding.watch(urgent)
    assert holding.hold(urgent)
    assert [(held.pod.uid, held.numa_nodes) for held in holding.places.reservations()] == [(urgent.uid, 0b11)]
    assert {name: [pod.uid for pod in pods] for name, pods in holding.places.awaited().items()} == {
        NODE_B: [urgent.uid]
    }
    holding.watch(replace(watched(two_nodes, "urgent"), gates=()))
    holding.places.give_up()
    assert holding.places.reservations() == ()
    assert holding.nominated("urgent") == NODE_B, "the scheduler tries it there first"


def test_a_nomination_that_an_earlier_leader_left_behind_is_taken_back(holding: Holding, two_nodes: Cluster) -> None:
    urgent = _urgent(two_nodes)
    holding.watch(urgent)
    assert holding.hold(urgent)
    holding.watch(watched(two_nodes, "urgent"))
    later = Holding(two_nodes)
    later.watch(watched(two_nodes, "urgent"))
    later.places.give_up()
    assert not holding.nominated("urgent")


def test_nothing_is_held_for_a_pod_that_has_changed_or_is_gone(holding: Holding, two_nodes: Cluster) -> None:
    urgent = _urgent(two_nodes)
    assert not holding.hold(replace(urgent, version="1"))
    two_nodes.remove(two_nodes.get("urgent"))
    eventually("it to be gone", lambda: not two_nodes.pods())
    assert not holding.hold(urgent)
    assert holding.places.reservations() == ()
    holding.apply(changes.PodRemoved(urgent.namespace, urgent.name, urgent.uid, holding.clock.now))
