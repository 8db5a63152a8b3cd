"""How ingest reads objects and which pods it enqueues. No cluster: objects are put in as they would come."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.builders import gated_pod, node_state, node_topology_object, refused_pod

from topomend.cache import changes
from topomend.cache.snapshot import Publication
from topomend.controller.ingest import Ingest, WatchEvent
from topomend.model.cluster import Owner, WatchedPod
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.reconcile.unschedulable_pods import UnschedulablePods

POD = PodID("ns", "p", "1")
STATE = node_state()


class Seen:
    """An ingest, the pods that it enqueued, and a clock."""

    def __init__(self) -> None:
        self.requeued: list[PodID] = []
        self.refused: list[WatchedPod] = []
        self.now = 1000.0
        self.store = Store()
        self.waiting = UnschedulablePods(self.store, self.requeued.append)
        self.ingest = Ingest(
            self.store,
            self.waiting,
            lambda pod, _: self.requeued.append(pod),
            self.refused.append,
            lambda: self.now,
        )
        self.eventually(POD)

    def publication(self, version: int, heartbeat: datetime, **status: Any) -> Publication:
        """What is known of the node after it published this."""
        time = heartbeat.strftime("%Y-%m-%dT%H:%M:%SZ")
        content = node_topology_object(STATE, version=str(version), heartbeatTime=time, **status)
        self.take(WatchEvent("nodetopologies", content))
        return self.store.snapshot.publications["a"]

    def eventually(self, pod: PodID) -> None:
        self.waiting.add(pod, Result(on_any_change=True), self.waiting.remove(pod))

    def take(self, item: WatchEvent | changes.Change) -> None:
        self.ingest._take(item)


def test_a_heartbeat_requeues_no_pod_and_a_change_does() -> None:
    seen, date = Seen(), datetime.now(UTC)
    first = seen.publication(5, date)
    assert seen.requeued == [POD]
    seen.requeued.clear()
    second = seen.publication(6, date + timedelta(seconds=600))
    assert (second.state, second.version, second.confirmed) == (STATE, first.version, "6")
    assert seen.requeued == []
    seen.publication(7, date + timedelta(seconds=700), cpuPool="0-3")
    assert seen.requeued == [POD]


def test_an_agent_that_died_is_not_believed() -> None:
    seen, date = Seen(), datetime.now(UTC)
    seen.publication(5, date)
    seen.requeued.clear()
    for _ in range(3):
        seen.now += changes.SILENT_SECONDS
        seen.take(changes.TimePassed(seen.now))
    assert seen.store.snapshot.publications["a"].problem == changes.SILENT
    assert seen.requeued == [POD]
    assert seen.publication(6, date + timedelta(hours=2)).problem == ""


def test_what_an_agent_left_that_died_before_the_operator_started_is_not_believed() -> None:
    died = datetime.now(UTC) - timedelta(seconds=changes.SILENT_SECONDS + 5)
    assert Seen().publication(5, died).problem == changes.SILENT


def test_a_refused_pod_of_a_controller_is_reported_even_if_it_is_deleted_at_once() -> None:
    seen = Seen()
    owned = refused_pod(uid="2", owner=Owner("StatefulSet", "db", "9"))
    seen.take(changes.PodUpdated(refused_pod(), 10.0))
    seen.take(changes.PodUpdated(owned, 10.0))
    seen.take(changes.PodRemoved("ns", "p", "2", 10.0))
    assert seen.refused == [owned]


def test_a_changed_node_requeues_the_pods_that_have_waited_longest_first() -> None:
    seen = Seen()
    waiting = [gated_pod(name) for name in ("c", "a", "d", "b")]
    for pod in waiting:
        seen.now += 1.0
        seen.take(changes.PodUpdated(pod, seen.now))
        seen.eventually(PodID("ns", pod.name, pod.uid))
    seen.requeued.clear()
    seen.publication(5, datetime.now(UTC))
    assert [pod_id.name for pod_id in seen.requeued] == ["p", "c", "a", "d", "b"]
