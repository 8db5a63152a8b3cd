"""Which waiting pods a change requeues. No cluster: changes are applied one by one."""

from dataclasses import replace

from tests.cache.test_changes import STATE, asking

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.cluster import Node, Placement, WatchedPod
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.reconcile.unschedulable_pods import UnschedulablePods
from topomend.replay.admission import admit
from topomend.wire.group import FIT_GATE

FULL = admit(admit(STATE, asking(3, "left"))[1], asking(4, "right"))[1]
ALMOST_FULL = admit(STATE, asking(4, "right"))[1]
ROOM, MACHINE, ANY = Result(60.0, on_capacity=True), Result(on_topology_change=True), Result(0.05, on_any_change=True)


class Cluster:
    """Full nodes ``a`` and ``b``, pods that wait for them, and the pods that were requeued."""

    def __init__(self) -> None:
        self.store = Store()
        self.requeued: list[str] = []
        self.waiting = UnschedulablePods(self.store, lambda pod: self.requeued.append(pod.name))
        for version, name in enumerate("ab"):
            allocatable = {"cpu": 7000, "memory": 1 << 50, "pods": 110_000}
            self.store.apply(
                changes.NodeUpdated(Node(name, labels={"kubernetes.io/hostname": name}, allocatable=allocatable))
            )
            self.store.apply(changes.Published(replace(FULL, name=name), f"{version + 1}"))
        self.waiting.requeue_affected()

    def wait(self, name: str, cpus: int, result: Result, **fields: object) -> PodID:
        """A pod was reconciled, in vain."""
        pod = WatchedPod("ns", name, name, "5", asking(cpus, name, name), gates=(FIT_GATE,))
        self.store.apply(changes.PodUpdated(replace(pod, **fields), 1.0))  # type: ignore[arg-type]
        self.waiting.requeue_affected()
        pod_id = PodID("ns", name, name)
        self.waiting.add(pod_id, result, self.waiting.remove(pod_id))
        return pod_id

    def happens(self, *seen: changes.Change) -> list[str]:
        """The pods that these changes requeue."""
        self.requeued.clear()
        for event in seen:
            self.store.apply(event)
        self.waiting.requeue_affected()
        return self.requeued


def test_a_changed_node_requeues_the_pods_that_it_would_admit_and_no_others() -> None:
    cluster = Cluster()
    cluster.wait("small", 2, ROOM)
    cluster.wait("wide", 4, ROOM)
    cluster.wait("elsewhere", 2, ROOM, placement=Placement(node_selector={"kubernetes.io/hostname": "b"}))
    assert cluster.happens(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["small"]
    assert cluster.happens(changes.Published(replace(STATE, name="a"), "11")) == ["small", "wide"]
    assert cluster.happens(changes.Published(replace(FULL, name="a"), "12")) == []


def test_a_node_without_an_agent_requeues_every_pod() -> None:
    cluster = Cluster()
    cluster.wait("small", 2, ROOM)
    assert cluster.happens(changes.Unpublished("a")) == ["small"]


def test_a_node_that_can_be_scheduled_to_again_is_a_change_and_one_that_only_got_a_new_version_is_none() -> None:
    cluster = Cluster()
    cluster.happens(changes.Published(STATE, "10"))
    open_node = cluster.store.snapshot.nodes["a"]
    cluster.happens(changes.NodeUpdated(replace(open_node, unschedulable=True)))
    cluster.wait("small", 2, ROOM)
    assert cluster.happens(changes.NodeUpdated(open_node)) == ["small"]
    assert cluster.happens(changes.NodeUpdated(replace(open_node, version="99"))) == []


def test_a_forgotten_assumption_is_a_change() -> None:
    cluster = Cluster()
    cluster.happens(changes.Published(STATE, "10"))
    cluster.store.apply(changes.PodAssumed(asking(4, "first"), ("a",), 1.0))
    cluster.store.apply(changes.PodAssumed(asking(3, "second"), ("a",), 1.0))
    cluster.waiting.requeue_affected()
    cluster.wait("wide", 4, ROOM)
    assert cluster.happens(changes.PodForgotten("ns", "second")) == []
    assert cluster.happens(changes.PodForgotten("ns", "first")) == ["wide"]


def test_a_pod_that_was_narrowed_before_is_requeued_for_every_node() -> None:
    cluster = Cluster()
    narrowed = Placement(node_selector={"kubernetes.io/hostname": "b"})
    cluster.wait("again", 4, ROOM, placement=narrowed, released=True)
    assert cluster.happens(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["again"]


def test_a_pod_that_goes_is_requeued_a_last_time_whatever_it_waits_for() -> None:
    cluster = Cluster()
    cluster.wait("full", 4, ROOM)
    cluster.wait("huge", 40, MACHINE)
    cluster.wait("stays", 4, ROOM)
    assert cluster.happens(changes.PodRemoved("ns", "full", "full", 2.0)) == ["full"]
    assert cluster.happens(changes.PodRemoved("ns", "huge", "huge", 2.0)) == ["full", "huge"]


def test_what_no_node_could_ever_admit_waits_for_other_machines() -> None:
    cluster = Cluster()
    cluster.wait("huge", 40, MACHINE)
    assert cluster.happens(changes.Published(STATE, "10")) == []
    assert cluster.happens(changes.Published(replace(STATE, devices=()), "11")) == []
    isolated = replace(STATE.machine, isolated=1)
    assert cluster.happens(changes.Published(replace(STATE, machine=isolated), "12")) == ["huge"]
    assert cluster.happens(changes.NodeRemoved("b")) == ["huge"]


def test_a_pod_that_yields_is_requeued_when_anything_changes_or_another_pod_stops_waiting() -> None:
    cluster = Cluster()
    cluster.wait("older", 4, ROOM)
    cluster.wait("younger", 4, ANY)
    assert cluster.happens(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["younger"]
    assert cluster.happens(changes.PodRemoved("ns", "older", "older", 2.0)) == ["older", "younger"]
    assert cluster.happens(changes.TimePassed(3.0)) == []


def test_a_change_during_the_reconciliation_of_a_pod_is_not_missed() -> None:
    cluster = Cluster()
    pod = cluster.wait("small", 2, ROOM)
    since = cluster.waiting.remove(pod)
    assert cluster.happens(changes.Published(STATE, "10")) == []
    cluster.waiting.add(pod, ROOM, since)
    assert cluster.requeued == ["small"]


def test_a_pod_that_is_reconciled_waits_no_more() -> None:
    cluster = Cluster()
    pod = cluster.wait("small", 2, ROOM)
    assert len(cluster.waiting) == 1
    before: Snapshot = cluster.store.snapshot
    assert cluster.waiting.remove(pod) is before
    assert cluster.happens(changes.Published(STATE, "10")) == []
    assert len(cluster.waiting) == 0
