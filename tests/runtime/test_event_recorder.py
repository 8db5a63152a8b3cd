"""Events as they are posted: their words fit the API server's limit, in bytes, and each object has a budget."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.clock import Clock
from tests.clusters import Cluster
from tests.waiting import eventually

from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import EVENTS, NAMESPACES
from topomend.runtime.event_recorder import (
    KEPT_SECONDS,
    LASTING_SECONDS,
    MAX_NOTE,
    NAMESPACE_BURST,
    OBJECT_BURST,
    REPEAT_SECONDS,
    EventRecorder,
    Regarding,
    _cut,
)

QUIET = "quiet-events"


@pytest.fixture
def recorder(two_nodes: Cluster) -> Iterator[EventRecorder]:
    made = EventRecorder(two_nodes.client, Clock())
    yield made
    made.stop()


def regarding(name: str, namespace: str = "default") -> Regarding:
    return Regarding("v1", "Pod", namespace, name, f"uid-of-{name}")


def posted(cluster: Cluster, prefix: str) -> int:
    return sum(event["regarding"]["name"].startswith(prefix) for event in cluster.client.list(EVENTS).items)


@pytest.mark.cluster
def test_an_object_has_a_burst_of_events_and_then_waits(two_nodes: Cluster, recorder: EventRecorder) -> None:
    for number in range(2 * OBJECT_BURST):
        recorder.emit(regarding("chatty"), "Normal", "Tried", "Try", f"note {number}")
    recorder.emit(regarding("not-chatty"), "Normal", "Tried", "Try", "note")
    assert not recorder.has_budget(regarding("chatty"))
    assert recorder.has_budget(regarding("not-chatty"))
    eventually("the last event", lambda: posted(two_nodes, "not-chatty"))
    assert posted(two_nodes, "chatty") == OBJECT_BURST


class HeldClient:
    """Posts nothing before it is opened, so that the queue is as full as the test made it; notes the order."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.opened = threading.Event()
        self.regarded: list[str] = []

    def create(self, resource: Any, body: dict[str, Any], namespace: str) -> None:
        self.opened.wait()
        self.regarded.append(body["regarding"]["name"])
        self._client.create(resource, body, namespace)


@pytest.mark.cluster
def test_a_namespace_with_many_objects_uses_up_its_own_events_only(two_nodes: Cluster) -> None:
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": QUIET}})
    held = HeldClient(two_nodes.client)
    recorder = EventRecorder(held, Clock())  # type: ignore[arg-type]
    for number in range(NAMESPACE_BURST + 100):
        recorder.emit(regarding(f"noisy-{number}"), "Normal", "Tried", "Try", "note")
    recorder.emit(regarding("silent", QUIET), "Normal", "Tried", "Try", "note")
    held.opened.set()
    eventually("all events that are within the budgets", lambda: posted(two_nodes, "noisy-") == NAMESPACE_BURST)
    recorder.stop()
    assert held.regarded.index("silent") <= 2
    assert len(held.regarded) == NAMESPACE_BURST + 1
    assert posted(two_nodes, "silent") == 1


@pytest.mark.parametrize(
    "note", ["x" * 5000, "é" * 2000, "€" * 1000 + "x", "\ud800" * 3000], ids=["ascii", "two", "three", "broken"]
)
def test_a_note_that_is_too_long_is_cut_to_the_bytes_that_an_event_may_have(note: str) -> None:
    cut = _cut(note)
    assert MAX_NOTE - 6 < len(cut.encode()) <= MAX_NOTE
    assert cut.endswith("…")


def test_a_note_that_fits_stays() -> None:
    assert _cut("x" * MAX_NOTE) == "x" * MAX_NOTE


class Kept:
    """A client that keeps what is posted."""

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []

    def create(self, _: Any, body: dict[str, Any], __: str) -> None:
        self.posted.append(body)


def posted_by(client: Kept, recorder: EventRecorder) -> list[tuple[str, str]]:
    """The objects and notes of the events, once all are posted."""
    recorder.stop()
    return [(body["regarding"]["name"], body["note"]) for body in client.posted]


def test_of_one_fact_in_other_figures_the_first_event_is_posted_and_the_next_once_that_is_gone() -> None:
    client, clock = Kept(), Clock()
    recorder = EventRecorder(client, clock)  # type: ignore[arg-type]
    assert recorder.is_new(regarding("p"), "Waits", "lacks cpu")
    for number in range(3):
        recorder.emit(regarding("p"), "Warning", "Waits", "Wait", f"lacks {number} cpu", fact="lacks cpu")
        assert not recorder.is_new(regarding("p"), "Waits", "lacks cpu")
    assert recorder.is_new(regarding("p"), "Waits", "lacks memory")
    for _ in range(int(KEPT_SECONDS / REPEAT_SECONDS) - 1):  # a pod that waits is tried again and again
        clock.now += REPEAT_SECONDS
        assert not recorder.is_new(regarding("p"), "Waits", "lacks cpu")
        recorder.emit(regarding("p"), "Warning", "Waits", "Wait", "lacks 2 cpu", fact="lacks cpu")
    clock.now += REPEAT_SECONDS
    recorder.emit(regarding("p"), "Warning", "Waits", "Wait", "lacks 3 cpu", fact="lacks cpu")
    assert posted_by(client, recorder) == [("p", "lacks 0 cpu"), ("p", "lacks 3 cpu")]


def test_a_fact_that_had_ended_is_posted_when_it_comes_back() -> None:
    client, clock = Kept(), Clock()
    recorder = EventRecorder(client, clock)  # type: ignore[arg-type]
    for _ in range(2):
        recorder.emit(regarding("p"), "Warning", "Waits", "Wait", "lacks cpu")
        clock.now += LASTING_SECONDS
    assert posted_by(client, recorder) == 2 * [("p", "lacks cpu")]


def test_a_fact_that_another_has_replaced_is_posted_again_after_five_minutes() -> None:
    client, clock = Kept(), Clock()
    recorder = EventRecorder(client, clock)  # type: ignore[arg-type]
    for note in ("lacks cpu", "lacks memory", "lacks cpu"):
        recorder.emit(regarding("p"), "Warning", "Waits", "Wait", note)
    clock.now += REPEAT_SECONDS
    recorder.emit(regarding("p"), "Warning", "Waits", "Wait", "lacks memory")
    recorder.emit(regarding("p"), "Warning", "Waits", "Wait", "lacks cpu")
    assert posted_by(client, recorder) == [("p", "lacks cpu"), ("p", "lacks memory"), ("p", "lacks cpu")]


def test_an_event_goes_to_those_whom_people_describe_with_names_of_their_own() -> None:
    client = Kept()
    above = regarding("web")
    recorder = EventRecorder(client, Clock(), described=lambda one: (one, above))  # type: ignore[arg-type]
    recorder.emit(regarding("web-1"), "Warning", "Waits", "Wait", "why", related=regarding("p"))
    assert posted_by(client, recorder) == [("web-1", "why"), ("web", "why")]
    names = [body["metadata"]["name"].rpartition(".")[0] for body in client.posted]
    assert names == ["web-1", "web"]
    assert {body["related"]["uid"] for body in client.posted} == {"uid-of-p"}
