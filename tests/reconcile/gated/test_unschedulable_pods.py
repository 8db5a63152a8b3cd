"""Which waiting pods a change requeues. No cluster: changes are applied one by one."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod, guaranteed_pod, node, node_state

from topomend.cache import changes
from topomend.cache.entries import PodCounted
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.node_status import kind_of
from topomend.model.pods.scheduling import Placement
from topomend.reconcile.gated import unschedulable_pods
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store

FULL = node_state(pods=[guaranteed_pod("left", 3), guaranteed_pod("right", 4)])
ALMOST_FULL = node_state(pods=[guaranteed_pod("right", 4)])
EMPTY = node_state()
ROOM, MACHINE, ANY = Result(60.0, on_capacity=True), Result(on_topology_change=True), Result(0.05, on_any_change=True)


class Cluster:
    """Full nodes ``a`` and ``b``, pods that wait for them, and the pods that were requeued."""

    def __init__(self) -> None:
        self.store = Store()
        self.requeued: list[str] = []
        self.waiting = UnschedulablePods(self.store, lambda pod: self.requeued.append(pod.name))
        for version, name in enumerate("ab", 1):
            self.store.apply(changes.NodeUpdated(node(name)))
            self.store.apply(changes.Published(replace(FULL, name=name), str(version)))
        self.waiting.requeue_affected()

    def wait(self, name: str, cpus: int, result: Result, **fields: Any) -> PodID:
        """A pod was reconciled without success."""
        self.store.apply(changes.PodUpdated(gated_pod(name, cpus, **fields), 1.0))
        self.waiting.requeue_affected()
        pod_id = PodID(fields.get("namespace", "ns"), name, name)
        self.waiting.add(pod_id, result, self.waiting.remove(pod_id))
        return pod_id

    def requeued_by(self, change: changes.Change) -> list[str]:
        """The pods that this change requeues."""
        self.requeued.clear()
        self.store.apply(change)
        self.waiting.requeue_affected()
        return self.requeued


def test_a_changed_node_requeues_the_pods_that_it_would_admit_and_no_others() -> None:
    cluster = Cluster()
    cluster.wait("small", 2, ROOM)
    cluster.wait("wide", 4, ROOM)
    cluster.wait("elsewhere", 2, ROOM, placement=Placement(node_selector={"kubernetes.io/hostname": "b"}))
    assert cluster.requeued_by(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["small"]
    assert cluster.requeued_by(changes.Published(replace(EMPTY, name="a"), "11")) == ["small", "wide"]
    assert cluster.requeued_by(changes.Published(replace(FULL, name="a"), "12")) == []


def test_a_node_whose_pods_leave_more_in_total_requeues_pods_and_one_that_is_fuller_none() -> None:
    cluster = Cluster()
    cluster.store.apply(changes.Published(replace(EMPTY, name="a"), "10"))
    cluster.store.apply(changes.ListBegun("a", 1))
    cluster.store.apply(changes.NodePodsListed("a", 1, "20", {"cpu": 6000, "pods": 1000}, {}))
    cluster.waiting.requeue_affected()
    cluster.wait("small", 2, ROOM)
    cluster.wait("yielding", 2, ANY)
    cluster.wait("wide", 4, ROOM)

    def seen(uid: str, version: str, cpu: int, *, ended: bool) -> changes.PodOnNode:
        usage = {"cpu": cpu, "pods": 1000}
        return changes.PodOnNode("a", PodCounted(uid, version, usage, ended=ended, entered=True))

    assert cluster.requeued_by(seen("x", "21", 500, ended=False)) == []
    assert cluster.requeued_by(seen("y", "22", 3000, ended=True)) == ["small", "yielding"]


def test_a_change_requeues_pods_of_higher_priority_before_older_ones() -> None:
    cluster = Cluster()
    cluster.wait("old", 2, ROOM)
    cluster.wait("urgent", 2, ROOM, priority=100)
    assert cluster.requeued_by(changes.Published(replace(EMPTY, name="a"), "10")) == ["urgent", "old"]


def test_a_node_without_an_agent_requeues_every_pod() -> None:
    cluster = Cluster()
    cluster.wait("small", 2, ROOM)
    assert cluster.requeued_by(changes.Unpublished("a")) == ["small"]


def test_a_node_that_can_be_scheduled_to_again_is_a_change_and_one_that_only_got_a_new_version_is_none() -> None:
    cluster = Cluster()
    cluster.requeued_by(changes.Published(EMPTY, "10"))
    open_node = cluster.store.snapshot.nodes["a"]
    cluster.requeued_by(changes.NodeUpdated(replace(open_node, unschedulable=True)))
    cluster.wait("small", 2, ROOM)
    assert cluster.requeued_by(changes.NodeUpdated(open_node)) == ["small"]
    assert cluster.requeued_by(changes.NodeUpdated(replace(open_node, version="99"))) == []


def test_a_forgotten_assumption_is_a_change() -> None:
    cluster = Cluster()
    cluster.requeued_by(changes.Published(EMPTY, "10"))
    cluster.store.apply(changes.PodAssumed(guaranteed_pod("first", 4), ("a",), 1.0))
    cluster.store.apply(changes.PodAssumed(guaranteed_pod("second", 3), ("a",), 1.0))
    cluster.waiting.requeue_affected()
    cluster.wait("wide", 4, ROOM)
    assert cluster.requeued_by(changes.PodForgotten("ns", "second")) == []
    assert cluster.requeued_by(changes.PodForgotten("ns", "first")) == ["wide"]


def test_a_pod_that_was_narrowed_before_is_requeued_for_every_node() -> None:
    cluster = Cluster()
    narrowed = Placement(node_selector={"kubernetes.io/hostname": "b"})
    cluster.wait("again", 4, ROOM, placement=narrowed, released=True)
    assert cluster.requeued_by(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["again"]


def test_a_pod_that_is_removed_is_requeued_once_more_whatever_it_waits_for() -> None:
    cluster = Cluster()
    cluster.wait("full", 4, ROOM)
    cluster.wait("huge", 40, MACHINE)
    cluster.wait("stays", 4, ROOM)
    assert cluster.requeued_by(changes.PodRemoved("ns", "full", "full", 2.0)) == ["full"]
    assert cluster.requeued_by(changes.PodRemoved("ns", "huge", "huge", 2.0)) == ["full", "huge"]


def test_an_infeasible_pod_waits_for_another_machine() -> None:
    cluster = Cluster()
    cluster.wait("huge", 40, MACHINE)
    assert cluster.requeued_by(changes.Published(EMPTY, "10")) == []
    assert cluster.requeued_by(changes.Published(replace(EMPTY, devices=()), "11")) == []
    isolated = replace(EMPTY.machine, isolated=1)
    assert cluster.requeued_by(changes.Published(replace(EMPTY, machine=isolated), "12")) == ["huge"]
    assert cluster.requeued_by(changes.NodeRemoved("b")) == ["huge"]


def test_a_pod_that_yields_is_requeued_when_anything_changes_or_another_pod_stops_waiting() -> None:
    cluster = Cluster()
    cluster.wait("older", 4, ROOM)
    cluster.wait("younger", 4, ANY)
    assert cluster.requeued_by(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["younger"]
    assert cluster.requeued_by(changes.PodRemoved("ns", "older", "older", 2.0)) == ["older", "younger"]
    assert cluster.requeued_by(changes.TimePassed(3.0)) == []


def test_a_change_during_the_reconciliation_of_a_pod_is_not_missed() -> None:
    cluster = Cluster()
    pod = cluster.wait("small", 2, ROOM)
    since = cluster.waiting.remove(pod)
    assert cluster.requeued_by(changes.Published(EMPTY, "10")) == []
    cluster.waiting.add(pod, ROOM, since)
    assert cluster.requeued == ["small"]


def test_a_change_at_the_moment_in_which_a_pod_begins_to_wait_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.store.apply(changes.PodUpdated(gated_pod("small", 2), 1.0))
    pod = PodID("ns", "small", "small")

    def change_and_say_which(*asked: Any) -> Any:
        cluster.requeued_by(changes.Published(replace(EMPTY, name="a"), "10"))
        return kind_of(*asked)

    monkeypatch.setattr(unschedulable_pods, "kind_of", change_and_say_which)
    cluster.waiting.add(pod, ROOM, cluster.waiting.remove(pod))
    assert cluster.requeued == ["small"]


def test_a_pod_that_is_reconciled_no_longer_waits() -> None:
    cluster = Cluster()
    pod = cluster.wait("small", 2, ROOM)
    assert len(cluster.waiting) == 1
    before: Snapshot = cluster.store.snapshot
    assert cluster.waiting.remove(pod) is before
    assert cluster.requeued_by(changes.Published(EMPTY, "10")) == []
    assert len(cluster.waiting) == 0


def test_one_namespace_with_many_kinds_of_pods_is_asked_in_turn_with_others_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are not asked about in time are requeued: whoever reconciles them gives namespaces turns too."""
    cluster = Cluster()
    for number in range(5):
        cluster.wait(f"flood-{number}", 5 + number, ROOM)
    cluster.wait("other", 4, ROOM, namespace="other")
    assert cluster.requeued_by(changes.Published(replace(EMPTY, name="a"), "10")) == ["other"]
    monkeypatch.setattr(unschedulable_pods, "ASKING_SECONDS", -1.0)
    requeued = cluster.requeued_by(changes.Published(replace(ALMOST_FULL, name="a"), "11"))
    assert sorted(requeued) == ["flood-0", "flood-1", "flood-2", "flood-3", "flood-4", "other"]
    assert requeued.index("other") <= 1
