"""Events as they are posted: their words fit the API server's limit, in bytes, and each object has a budget."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.clock import Clock
from tests.clusters import Cluster
from tests.waiting import eventually

from topomend.kube.client import EVENTS, NAMESPACES
from topomend.kube.errors import AlreadyExists
from topomend.runtime.event_recorder import (
    MAX_NOTE,
    NAMESPACE_BURST,
    OBJECT_BURST,
    EventRecorder,
    Regarding,
    _cut,
)

QUIET = "quiet-events"


@pytest.fixture
def recorder(two_nodes: Cluster) -> Iterator[EventRecorder]:
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": QUIET}})
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


@pytest.mark.cluster
def test_a_namespace_with_many_objects_uses_up_its_own_events_only(two_nodes: Cluster, recorder: EventRecorder) -> None:
    for number in range(NAMESPACE_BURST + 100):
        recorder.emit(regarding(f"noisy-{number}"), "Normal", "Tried", "Try", "note")
    recorder.emit(regarding("silent", QUIET), "Normal", "Tried", "Try", "note")
    eventually("the other namespace's event, by turns", lambda: posted(two_nodes, "silent"))
    assert posted(two_nodes, "noisy-") < NAMESPACE_BURST
    eventually("the rest", lambda: posted(two_nodes, "noisy-") == NAMESPACE_BURST)


@pytest.mark.parametrize(
    "note", ["x" * 5000, "é" * 2000, "€" * 1000 + "x", "\ud800" * 3000], ids=["ascii", "two", "three", "broken"]
)
def test_a_note_that_is_too_long_is_cut_to_the_bytes_that_an_event_may_have(note: str) -> None:
    cut = _cut(note)
    assert MAX_NOTE - 6 < len(cut.encode()) <= MAX_NOTE
    assert cut.endswith("…")


def test_a_note_that_fits_stays() -> None:
    assert _cut("x" * MAX_NOTE) == "x" * MAX_NOTE
