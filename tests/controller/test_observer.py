"""What the observer makes of what agents publish. No cluster: objects are handed in as they would come."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.watch.test_events import STATE, refused
from tests.watch.test_reading import content

from topomend.controller.again import Again
from topomend.controller.observer import Observer, Sighting
from topomend.controller.pod_id import PodID
from topomend.controller.store import Store
from topomend.controller.waiting import Waiting
from topomend.model.cluster import Owner, WatchedPod
from topomend.model.pod import Pod
from topomend.watch import events
from topomend.watch.view import Publication
from topomend.wire.group import FIT_GATE

POD = PodID("ns", "p", "1")


class Seen:
    """An observer, the pods that it had looked at, and a clock."""

    def __init__(self) -> None:
        self.looked_at: list[PodID] = []
        self.refused: list[WatchedPod] = []
        self.now = 1000.0
        self.store = Store()
        self.waiting = Waiting(self.store, self.looked_at.append)
        self.observer = Observer(
            self.store,
            self.waiting,
            lambda pod, _: self.looked_at.append(pod),
            self.refused.append,
            lambda: self.now,
        )
        self.wait_for(POD)

    def publication(self, version: int, heartbeat: datetime, **status: Any) -> Publication:
        """What is known of the node after it published this."""
        made = content(heartbeatTime=heartbeat.strftime("%Y-%m-%dT%H:%M:%SZ"), **status)
        made["metadata"] = {"name": "a", "resourceVersion": str(version)}
        self.take(Sighting("nodetopologies", made))
        return self.store.view.publications["a"]

    def wait_for(self, pod: PodID) -> None:
        self.waiting.begin(pod, Again(on_any_change=True), self.waiting.stop(pod))

    def take(self, item: Sighting | events.Event) -> None:
        self.observer._take(item)


def test_a_heartbeat_has_no_pod_looked_at_and_a_change_has() -> None:
    seen, date = Seen(), datetime.now(UTC)
    first = seen.publication(5, date)
    assert seen.looked_at == [POD]
    seen.looked_at.clear()
    second = seen.publication(6, date + timedelta(seconds=600))
    assert (second.state, second.version, second.confirmed) == (STATE, first.version, "6")
    assert seen.looked_at == []
    seen.publication(7, date + timedelta(seconds=700), cpuPool="0-3")
    assert seen.looked_at == [POD]


def test_an_agent_that_died_is_not_believed() -> None:
    seen, date = Seen(), datetime.now(UTC)
    seen.publication(5, date)
    seen.looked_at.clear()
    for _ in range(3):
        seen.now += events.SILENT_SECONDS
        seen.take(events.TimePassed(seen.now))
    assert seen.store.view.publications["a"].problem == events.SILENT
    assert seen.looked_at == [POD]
    assert seen.publication(6, date + timedelta(hours=2)).problem == ""


def test_what_an_agent_left_that_died_before_the_operator_started_is_not_believed() -> None:
    died = datetime.now(UTC) - timedelta(seconds=events.SILENT_SECONDS + 5)
    assert Seen().publication(5, died).problem == events.SILENT


def test_a_refused_pod_of_a_controller_is_told_at_its_first_sight_even_if_it_is_gone_at_once() -> None:
    seen = Seen()
    owned = replace(refused("2"), owner=Owner("StatefulSet", "db", "9"))
    seen.take(events.PodSeen(refused(), 10.0))
    seen.take(events.PodSeen(owned, 10.0))
    seen.take(events.PodGone("ns", "p", "2", 10.0))
    assert seen.refused == [owned]


def test_when_a_node_changes_those_that_have_waited_longest_are_looked_at_first() -> None:
    seen = Seen()
    waiting = [WatchedPod("ns", name, name, "5", Pod("ns", name), gates=(FIT_GATE,)) for name in ("c", "a", "d", "b")]
    for pod in waiting:
        seen.now += 1.0
        seen.take(events.PodSeen(pod, seen.now))
        seen.wait_for(PodID("ns", pod.name, pod.uid))
    seen.looked_at.clear()
    seen.publication(5, datetime.now(UTC))
    assert [each.name for each in seen.looked_at] == ["p", "c", "a", "d", "b"]
