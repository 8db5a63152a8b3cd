"""Which of the pods that wait are looked at when something changes. No cluster: events are folded as they come."""

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
    """Full nodes ``a`` and ``b``, pods that wait for them, and whom somebody had looked at."""

    def __init__(self) -> None:
        self.store = Store()
        self.looked_at: list[str] = []
        self.waiting = UnschedulablePods(self.store, lambda pod: self.looked_at.append(pod.name))
        for version, name in enumerate("ab"):
            allocatable = {"cpu": 7000, "memory": 1 << 50, "pods": 110_000}
            self.store.apply(
                changes.NodeUpdated(Node(name, labels={"kubernetes.io/hostname": name}, allocatable=allocatable))
            )
            self.store.apply(changes.Published(replace(FULL, name=name), f"{version + 1}"))
        self.waiting.tell()

    def wait(self, name: str, cpus: int, result: Result, **fields: object) -> PodID:
        """A pod was looked at, in vain."""
        pod = WatchedPod("ns", name, name, "5", asking(cpus, name, name), gates=(FIT_GATE,))
        self.store.apply(changes.PodUpdated(replace(pod, **fields), 1.0))  # type: ignore[arg-type]
        self.waiting.tell()
        found = PodID("ns", name, name)
        self.waiting.begin(found, result, self.waiting.stop(found))
        return found

    def happens(self, *seen: changes.Event) -> list[str]:
        """Who is looked at for it."""
        self.looked_at.clear()
        for event in seen:
            self.store.apply(event)
        self.waiting.tell()
        return self.looked_at


def test_those_are_looked_at_whom_the_changed_node_would_take_and_no_others() -> None:
    cluster = Cluster()
    cluster.wait("small", 2, ROOM)
    cluster.wait("wide", 4, ROOM)
    cluster.wait("elsewhere", 2, ROOM, placement=Placement(node_selector={"kubernetes.io/hostname": "b"}))
    assert cluster.happens(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["small"]
    assert cluster.happens(changes.Published(replace(STATE, name="a"), "11")) == ["small", "wide"]
    assert cluster.happens(changes.Published(replace(FULL, name="a"), "12")) == []


def test_a_node_that_no_agent_tells_of_any_more_takes_anybody() -> None:
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


def test_a_place_that_is_given_back_is_a_change() -> None:
    cluster = Cluster()
    cluster.happens(changes.Published(STATE, "10"))
    cluster.store.apply(changes.Released(asking(4, "first"), ("a",), 1.0))
    cluster.store.apply(changes.Released(asking(3, "second"), ("a",), 1.0))
    cluster.waiting.tell()
    cluster.wait("wide", 4, ROOM)
    assert cluster.happens(changes.PodForgotten("ns", "second")) == []
    assert cluster.happens(changes.PodForgotten("ns", "first")) == ["wide"]


def test_a_pod_that_was_narrowed_before_is_looked_at_for_every_node() -> None:
    cluster = Cluster()
    narrowed = Placement(node_selector={"kubernetes.io/hostname": "b"})
    cluster.wait("again", 4, ROOM, placement=narrowed, released=True)
    assert cluster.happens(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["again"]


def test_a_pod_that_goes_is_looked_at_a_last_time_whatever_it_waits_for() -> None:
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


def test_who_is_held_back_for_another_is_looked_at_when_anything_changes_or_another_ceases_to_wait() -> None:
    cluster = Cluster()
    cluster.wait("older", 4, ROOM)
    cluster.wait("younger", 4, ANY)
    assert cluster.happens(changes.Published(replace(ALMOST_FULL, name="a"), "10")) == ["younger"]
    assert cluster.happens(changes.PodRemoved("ns", "older", "older", 2.0)) == ["older", "younger"]
    assert cluster.happens(changes.TimePassed(3.0)) == []


def test_what_changes_while_a_pod_is_looked_at_is_not_missed() -> None:
    cluster = Cluster()
    pod = cluster.wait("small", 2, ROOM)
    since = cluster.waiting.stop(pod)
    assert cluster.happens(changes.Published(STATE, "10")) == []
    cluster.waiting.begin(pod, ROOM, since)
    assert cluster.looked_at == ["small"]


def test_who_is_looked_at_waits_no_more() -> None:
    cluster = Cluster()
    pod = cluster.wait("small", 2, ROOM)
    assert len(cluster.waiting) == 1
    before: Snapshot = cluster.store.snapshot
    assert cluster.waiting.stop(pod) is before
    assert cluster.happens(changes.Published(STATE, "10")) == []
    assert len(cluster.waiting) == 0
