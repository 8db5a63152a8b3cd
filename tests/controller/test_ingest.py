"""How ingest reads objects and which pods it enqueues. No cluster: objects are put in as they would come."""

import json
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.builders import gated_pod, node, node_state, node_topology_object, pod_manifest, refused_pod, watched_pod
from tests.waiting import eventually

from topomend.cache import changes
from topomend.cache.snapshot import Publication, Snapshot
from topomend.controller import ingest
from topomend.controller.ingest import PUBLICATION_SECONDS, Ingest, WatchEvent, watch_event
from topomend.model.pods.scheduling import REFUSAL_PREFIX, Owner, WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.reconcile.gated import unschedulable_pods
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.replay import scopes
from topomend.wire.group import FIT_GATE, RELAUNCH_FINALIZER
from topomend.wire.relaunch_record import record_name, relaunch_object

POD = PodID("ns", "p", "1")
RECORD = Relaunch("ns", record_name("p", "u"), "p", "u", "a", "TopologyAffinityError", "", 1)
STATE = node_state()


class Seen:
    """An ingest, the pods that it enqueued, and a clock."""

    def __init__(self) -> None:
        self.requeued: list[PodID] = []
        self.refused: list[WatchedPod] = []
        self.bound: list[WatchedPod] = []
        self.dropped: list[bool] = []
        self.now = 1000.0
        self.store = Store()
        self.waiting = UnschedulablePods(self.store, self.requeued.append)
        self.ingest = Ingest(
            self.store,
            self.waiting,
            lambda pod, _: self.requeued.append(pod),
            self.refused.append,
            bound=self.bound.append,
            dropped=lambda: self.dropped.append(True),
            clock=lambda: self.now,
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
        self.ingest.put(item)
        self.apply()

    def apply(self) -> None:
        """Apply what waits, once the node may publish again."""
        self.now += PUBLICATION_SECONDS
        while items := self.ingest._inbox.take(ingest.AT_ONCE, 0.0):
            self.ingest._apply_items(items)
        if self.waiting.wait_for_change(0.0):
            self.waiting.requeue_affected()


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


def test_taking_a_change_in_asks_no_node_about_the_pods_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    seen.take(changes.NodeUpdated(node("a")))
    for name in ("first", "second"):
        pod = gated_pod(name)
        seen.take(changes.PodUpdated(pod, seen.now))
        seen.waiting.add(PodID("ns", name, pod.uid), Result(on_capacity=True), seen.store.snapshot)
    monkeypatch.setattr(unschedulable_pods, "any_node_admits", lambda *_: pytest.fail("asked"))
    seen.ingest._apply([changes.Published(STATE, "5")])
    bound = replace(gated_pod("first"), gates=(), node="a")
    with monkeypatch.context() as replaying:
        replaying.setattr(scopes.Scope, "admit", lambda *_: pytest.fail("replayed"))
        seen.ingest._apply([changes.PodUpdated(bound, seen.now)])
    assert seen.store.snapshot.assumed["ns", "first"].nodes == ("a",)


def test_an_unbound_pod_is_reconciled_when_it_is_seen_and_by_the_next_leader_unless_a_controller_has_it() -> None:
    seen = Seen()
    fields: dict[str, Any] = {"narrowed": True, "unschedulable": True}
    owner = Owner("ReplicaSet", "rs", "2", "apps/v1")
    for pod in (watched_pod("alone", uid="u", **fields), watched_pod("owned", uid="o", owner=owner, **fields)):
        seen.take(changes.PodUpdated(pod, seen.now))
    assert [pod.name for pod in seen.requeued if pod != POD] == ["alone"]
    seen.requeued.clear()
    seen.ingest.enqueue_all()
    assert seen.requeued == [PodID("ns", "alone", "u")]
    seen.take(changes.PodUpdated(watched_pod("alone", uid="u", node="a", **fields), seen.now))
    assert [pod.name for pod in seen.bound] == ["alone"]
    assert len(seen.requeued) == 1


@pytest.mark.parametrize("fields", [{"node": "a"}, {"deleting": True}, {"node": "a", "phase": "Failed"}])
def test_a_pod_that_has_our_finalizer_is_reconciled_after_it_was_bound_or_deleted(fields: dict[str, Any]) -> None:
    seen = Seen()
    pod = watched_pod("alone", uid="u", finalizers=(RELAUNCH_FINALIZER,), **fields)
    seen.take(changes.PodUpdated(pod, seen.now))
    seen.ingest.enqueue_all()
    assert [pod for pod in seen.requeued if pod != POD] == [PodID("ns", "alone", "u")] * 2
    assert bool(seen.bound) is ("node" in fields)


def test_of_what_a_node_publishes_the_newest_is_taken_in_at_intervals_and_other_nodes_do_not_wait() -> None:
    seen = Seen()
    seen.ingest.start()

    def put(node_name: str, version: int) -> None:
        state = replace(STATE, name=node_name)
        seen.ingest.put(WatchEvent("nodetopologies", node_topology_object(state, version=str(version))))

    def versions() -> dict[str, str]:
        return {name: publication.confirmed for name, publication in seen.store.snapshot.publications.items()}

    put("a", 1)
    eventually("the first", lambda: versions() == {"a": "1"}, poll=0.001)
    for version in range(2, 1000):
        put("a", version)
    put("b", 1)
    eventually("that of the other node", lambda: versions() == {"a": "1", "b": "1"}, poll=0.001)
    seen.now += PUBLICATION_SECONDS
    put("b", 2)
    eventually("the newest", lambda: versions() == {"a": "999", "b": "2"}, poll=0.001)
    seen.ingest.stop()


def arrived(content: dict[str, Any], kind: str = "ADDED") -> WatchEvent:
    """The event of a pod as a watch brings it."""
    line = json.dumps({"type": kind, "object": content}).encode()
    event = watch_event("pods", line)
    assert event is not None
    return event


def on_node(name: str, version: int, phase: str = "Pending", **fields: Any) -> dict[str, Any]:
    """A pod with a node."""
    content = pod_manifest(name, "request:cpu=2", namespace="ns", uid=name, node="a", status={"phase": phase})
    content["metadata"] |= {"resourceVersion": str(version)} | fields
    return content


def used(seen: Seen) -> Any:
    return seen.store.snapshot.nodes["a"].used


@pytest.fixture
def counting() -> Seen:
    """An ingest, and node ``a`` whose pods were listed."""
    seen = Seen()
    seen.take(changes.NodeUpdated(node("a")))
    seen.store.apply(changes.ListBegun("a", 1))
    seen.store.apply(changes.NodePodsListed("a", 1, "10", {"cpu": 1000, "pods": 1000}, {}))
    return seen


def test_every_pod_that_a_watch_shows_counts_on_its_node_until_it_ends(counting: Seen) -> None:
    counting.take(arrived(on_node("p", 11), "ADDED"))
    assert used(counting)["cpu"] == 3000
    counting.take(arrived(on_node("p", 12), "DELETED"))
    assert used(counting)["cpu"] == 3000
    counting.take(arrived(on_node("p", 13, "Succeeded"), "ADDED"))
    assert used(counting)["cpu"] == 1000
    counting.take(arrived(on_node("p", 14, "Succeeded"), "MODIFIED"))
    assert used(counting)["cpu"] == 1000
    assert counting.ingest.newest_pod == "14"


def test_a_pod_that_is_too_odd_or_too_large_to_be_kept_counts_all_the_same(counting: Seen) -> None:
    odd = on_node("odd", 11)
    odd["metadata"]["ownerReferences"] = 3
    counting.take(arrived(odd, "ADDED"))
    assert used(counting)["cpu"] == 3000
    large = on_node("large", 12)
    large["spec"]["containers"][0]["env"] = [{"name": f"v{number}", "value": "x" * 50} for number in range(1000)]
    counting.take(arrived(large, "ADDED"))
    assert used(counting)["cpu"] == 5000


def test_after_a_gap_in_the_watches_nothing_is_known(counting: Seen) -> None:
    counting.take(arrived(on_node("p", 11)))
    counting.ingest.missed()
    counting.apply()
    assert used(counting) is None
    assert counting.ingest.newest_pod == ""


def test_what_arrived_before_a_gap_and_is_read_after_it_is_not_the_newest_pod(counting: Seen) -> None:
    """A list that need not be newer may lack what the gap hid."""
    counting.ingest.put(arrived(on_node("p", 11)))
    counting.ingest.missed()
    counting.apply()
    assert counting.ingest.newest_pod == ""
    counting.take(arrived(on_node("q", 12)))
    assert counting.ingest.newest_pod == "12"


def test_a_list_of_pods_counts_none(counting: Seen) -> None:
    """What it contains may be in the sum already."""
    counting.take(WatchEvent("pods", on_node("p", 11)))
    assert used(counting)["cpu"] == 1000


def manifest(name: str, namespace: str) -> dict[str, Any]:
    """A gated pod."""
    content = pod_manifest(
        name, "cpu=2 memory=1Gi", namespace=namespace, uid=f"{namespace}-{name}", resourceVersion="5"
    )
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    return content


def test_of_a_namespace_with_too_many_pods_some_are_dropped_and_have_everything_listed_again_and_of_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    length = len(arrived(manifest("p0", "many")).line)
    monkeypatch.setattr(ingest, "MAX_INBOX_BYTES", 6 * length)
    seen = Seen()  # whose thread has not started
    for number in range(5):
        seen.ingest.put(arrived(manifest(f"p{number}", "many")))
    assert seen.dropped == [True, True]
    seen.ingest.put(arrived(manifest("p0", "few")))
    assert seen.dropped == [True, True]
    seen.apply()
    assert set(seen.store.snapshot.gated) == {("many", "p0"), ("many", "p1"), ("many", "p2"), ("few", "p0")}
    seen.ingest.put(arrived(manifest("p3", "many")))
    assert seen.dropped == [True, True]


def test_a_pod_is_not_behind_thousands_of_another_namespace() -> None:
    seen = Seen()
    for number in range(1000):
        seen.ingest.put(arrived(manifest(f"p{number}", "many")))
    seen.ingest.put(arrived(manifest("p", "few")))
    items = seen.ingest._inbox.take(2, 0.0)
    assert items is not None
    seen.ingest._apply_items(items)
    assert set(seen.store.snapshot.gated) == {("many", "p0"), ("few", "p")}


def test_what_happens_to_a_pod_is_taken_in_as_it_happened() -> None:
    """Its controller may delete a refused pod at once."""
    seen, content = Seen(), manifest("p", "ns")
    owner = {"kind": "StatefulSet", "name": "db", "uid": "9", "controller": True, "apiVersion": "apps/v1"}
    content["metadata"]["ownerReferences"] = [owner]
    seen.ingest.put(arrived(content))
    status = {"phase": "Failed", "message": f"{REFUSAL_PREFIX}why"}
    seen.ingest.put(arrived(content | {"status": status}, "MODIFIED"))
    seen.ingest.put(arrived(content | {"status": status}, "DELETED"))
    seen.apply()
    assert [pod.name for pod in seen.refused] == ["p"]
    assert not seen.store.snapshot.refused
    assert not seen.store.snapshot.gated


def test_a_list_is_applied_after_what_came_before_it_and_not_before_that_of_any_namespace() -> None:
    seen = Seen()
    for name in ("p0", "p1", "p2"):
        seen.ingest.put(arrived(manifest(name, "many")))
    seen.ingest.put(arrived(manifest("p", "few")))
    seen.ingest.put(changes.PodsListed((), "9", seen.now))
    seen.apply()
    assert not seen.store.snapshot.gated


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_pod_that_was_deleted_after_a_list_was_read_is_not_back_by_the_list(is_bound: bool) -> None:
    """It would hold CPUs of its node until the next list, or be before pods that come after it."""
    seen = Seen()
    seen.publication(1, datetime.now(UTC))
    gone = manifest("p", "ns")
    if is_bound:
        gone["spec"] |= {"schedulingGates": [], "nodeName": "a"}
    listed = seen.ingest.read(arrived(gone))
    assert isinstance(listed, changes.PodUpdated)
    gone["metadata"]["resourceVersion"] = "8"
    seen.take(arrived(gone, "DELETED"))
    seen.take(changes.PodsListed((listed.pod,), "7", seen.now))
    assert not seen.store.snapshot.assumed
    assert not seen.store.snapshot.gated
    seen.take(changes.PodsListed((listed.pod,), "9", seen.now))
    assert seen.store.snapshot.assumed if is_bound else seen.store.snapshot.gated


def test_a_pod_that_changed_after_a_list_was_read_stays_as_it_is_now() -> None:
    seen, content = Seen(), manifest("p", "ns")
    seen.take(arrived(content))
    gated = seen.store.snapshot.gated["ns", "p"]
    content["metadata"]["resourceVersion"] = "8"
    content["spec"] |= {"schedulingGates": [], "nodeName": "a"}
    seen.publication(1, datetime.now(UTC))
    seen.take(arrived(content, "MODIFIED"))
    for listed in ((gated,), ()):
        seen.take(changes.PodsListed(listed, "7", seen.now))
        assert not seen.store.snapshot.gated
        assert seen.store.snapshot.assumed["ns", "p"].expires is None


def test_what_was_deleted_after_a_list_was_read_is_not_back_by_the_list_whatever_it_is() -> None:
    seen, record = Seen(), relaunch_object(RECORD)
    published = node_topology_object(STATE, version="8")
    for plural, content in (
        ("nodes", {"metadata": {"name": "a"}}),
        ("nodetopologies", published),
        ("relaunches", record),
    ):
        content["metadata"]["resourceVersion"] = "8"
        seen.take(WatchEvent(plural, content, gone=True))
    seen.take(changes.NodesListed((node("a"), node("b")), "7"))
    seen.take(changes.PublicationsListed((changes.Published(STATE, "5"),), "7"))
    seen.take(changes.RelaunchesListed((RECORD,), "7"))
    snapshot = seen.store.snapshot
    assert (set(snapshot.nodes), set(snapshot.publications), set(snapshot.relaunches)) == ({"b"}, set(), set())


def test_what_came_after_a_list_was_read_stays_whatever_it_is() -> None:
    seen = Seen()
    seen.take(WatchEvent("nodes", {"metadata": {"name": "a", "resourceVersion": "8"}}))
    seen.publication(8, datetime.now(UTC))
    seen.take(WatchEvent("relaunches", relaunch_object(RECORD) | {"metadata": _versioned(RECORD)}))
    seen.take(changes.NodesListed((), "7"))
    seen.take(changes.PublicationsListed((), "7"))
    seen.take(changes.RelaunchesListed((), "7"))
    snapshot = seen.store.snapshot
    assert (set(snapshot.nodes), set(snapshot.publications)) == ({"a"}, {"a"})
    assert set(snapshot.relaunches) == {("ns", RECORD.name)}


def _versioned(record: Relaunch) -> dict[str, Any]:
    return {"name": record.name, "namespace": record.namespace, "uid": "1", "resourceVersion": "8"}


def test_the_pods_of_a_long_list_are_enqueued_bit_by_bit_and_what_comes_meanwhile_before_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest, "ENQUEUED_AT_ONCE", 2)
    seen = Seen()
    pods = [gated_pod(f"p{number}", uid=f"{number}") for number in range(5)]
    seen.ingest._apply([changes.PodsListed(tuple(pods), "9", seen.now)])
    seen.take(changes.PodUpdated(gated_pod("late"), seen.now))
    assert [pod.name for pod in seen.requeued if pod != POD] == ["p0", "p1", "late", "p2", "p3", "p4"]


def test_a_change_that_is_a_bug_is_passed_over_and_those_around_it_are_applied(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Bug:
        def apply_to(self, _: Snapshot) -> Snapshot:
            raise ZeroDivisionError

    seen = Seen()
    first, last = (changes.PodUpdated(gated_pod(name), seen.now) for name in ("first", "last"))
    seen.ingest._apply([first, Bug(), last])
    assert set(seen.store.snapshot.gated) == {("ns", "first"), ("ns", "last")}
    assert sum("Bug is ignored" in message for message in caplog.messages) == 1


def test_malformed_objects_of_one_name_in_two_namespaces_are_two(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen()
    for namespace in ("one", "two", "one"):
        seen.take(WatchEvent("pods", {"metadata": {"name": "p", "namespace": namespace}}))
    assert sum("is malformed" in message for message in caplog.messages) == 2


def test_a_list_of_many_gated_pods_copies_the_gated_pods_as_often_as_one_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy for each pod would make time grow with the square of the list."""
    copies: list[object] = []
    build = Snapshot.__init__

    def recorded(self: Snapshot, *arguments: Any, **fields: Any) -> None:
        build(self, *arguments, **fields)
        if not any(copy is self.gated for copy in copies):
            copies.append(self.gated)

    def copied(count: int) -> int:
        pods = tuple(gated_pod(f"p{number}", uid=str(number)) for number in range(count))
        store = Store()
        copies.clear()
        store.apply(changes.PodsListed(pods, "9", 1.0))
        assert len(store.snapshot.gated) == count
        return len(copies)

    monkeypatch.setattr(Snapshot, "__init__", recorded)
    assert copied(200) == copied(2)


def test_what_waits_to_be_applied_is_small_whatever_the_objects_are() -> None:
    seen, content = Seen(), pod_manifest("p", namespace="ns", uid="1")
    content["spec"]["containers"][0]["env"] = [{"name": f"v{index}", "value": "x"} for index in range(20_000)]
    tracemalloc.start()
    try:
        for _ in range(5):
            seen.ingest.put(WatchEvent("pods", json.loads(json.dumps(content))))
        waiting = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert waiting < 200_000


def test_of_the_states_that_a_node_published_only_the_last_one_waits() -> None:
    seen, heartbeat = Seen(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for version in range(5, 100):
        content = node_topology_object(STATE, version=str(version), heartbeatTime=heartbeat)
        seen.ingest.put(WatchEvent("nodetopologies", content))
    assert len(seen.ingest._inbox) == 1
    seen.apply()
    assert seen.store.snapshot.publications["a"].version == "99"
    seen.take(WatchEvent("nodetopologies", content, gone=True))
    assert not seen.store.snapshot.publications


def test_of_many_nodes_that_publish_large_states_at_once_few_wait_and_the_others_count_as_unreadable() -> None:
    seen = Seen()
    devices = [{"resource": "a/b", "groups": [{"ids": [f"{number}" for number in range(20_000)]}]}]
    for number in range(60):
        content = node_topology_object(node_state(name=f"{number}"), devices=devices)
        seen.ingest.put(WatchEvent("nodetopologies", content))
    seen.apply()
    snapshot = seen.store.snapshot
    assert 10 < len(snapshot.publications) < 40
    assert len(snapshot.unreadable) == 60 - len(snapshot.publications)
    assert all("too large to be kept beside" in why for why in snapshot.unreadable.values())
    seen.ingest.put(WatchEvent("nodetopologies", node_topology_object(node_state(name="59"), version="8")))
    seen.apply()
    assert "59" in seen.store.snapshot.publications


def test_a_malformed_object_is_passed_over_and_one_that_cannot_be_read_at_all_too() -> None:
    seen = Seen()
    for content in ({"metadata": {"name": "p", "namespace": "ns"}}, {"metadata": {"name": "q"}}):
        seen.take(WatchEvent("pods", content))
    seen.take(WatchEvent("nodetopologies", {"metadata": {"name": "a"}, "status": {"machine": 3}}))
    assert "malformed" in seen.store.snapshot.unreadable["a"]


def test_what_is_kept_of_a_record_is_small() -> None:
    seen = Seen()
    verdicts = [{"node": f"node-{index}", "admitted": False, "explanation": "x" * 1000} for index in range(10)]
    manifest = {"spec": {"containers": [{"env": [{"name": "a", "value": "x" * 10_000}]}]}}
    status = {"step": "Committed", "verdicts": verdicts, "manifest": manifest}
    seen.take(WatchEvent("relaunches", relaunch_object(RECORD) | {"status": status}))
    assert len(repr(seen.store.snapshot.relaunches["ns", RECORD.name])) < 2000


def test_a_record_ends_with_its_pod() -> None:
    seen = Seen()
    seen.take(changes.PodUpdated(refused_pod(), 10.0))
    seen.take(changes.RelaunchUpdated(RECORD))
    seen.requeued.clear()
    seen.take(changes.PodRemoved("ns", "p", "another", 10.0))
    assert seen.requeued == []
    seen.take(changes.PodRemoved("ns", "p", RECORD.pod_uid, 10.0))
    assert seen.requeued == [PodID("ns", "p", RECORD.pod_uid)]


def test_a_node_that_goes_requeues_the_pods_that_it_refused() -> None:
    seen = Seen()
    seen.take(changes.PodUpdated(refused_pod(), 10.0))
    seen.take(changes.PodUpdated(refused_pod("q", node="b"), 10.0))
    seen.requeued.clear()
    seen.take(changes.NodeRemoved("b"))
    assert seen.requeued == [PodID("ns", "q", "q")]
