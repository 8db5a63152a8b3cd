"""Which pods ask for a look, by their status."""

from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.cli.numa.explain.pod_state import State, scheduling_words, state_of

REFUSED = {"phase": "Failed", "message": "Pod was rejected: Resources cannot be allocated with Topology locality"}


def waiting_for_a_resize() -> dict[str, Any]:
    return {"phase": "Running", "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}


@pytest.mark.parametrize(
    ("node", "status", "state"),
    [
        ("a", REFUSED, State.REFUSED),
        ("", {"phase": "Pending"}, State.WAITS),
        ("", {}, State.WAITS),
        ("a", {"phase": "Pending"}, State.STARTS),
        ("a", {"phase": "Running"}, State.RUNS),
        ("a", waiting_for_a_resize(), State.RESIZE_WAITS),
        ("a", {"phase": "Failed", "message": "it crashed"}, State.ENDED),
        ("a", {"phase": "Succeeded"}, State.ENDED),
    ],
)
def test_the_status_tells_the_state(node: str, status: dict[str, Any], state: State) -> None:
    assert state_of(pod_manifest(node=node, status=status)) is state


def test_a_pod_that_is_being_deleted_asks_for_no_look() -> None:
    assert state_of(pod_manifest(deletionTimestamp="2026-01-01T00:00:00Z")) is State.ENDED
    assert [state.key for state in State][1:3] == ["waits", "resizeWaits"]
    assert [state for state in State if state.asks_for_a_look] == list(State)[:3], "those come first"


def test_the_schedulers_words_are_those_of_the_condition() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    assert scheduling_words(pod_manifest(status={"conditions": [said]})) == "(Unschedulable): 0/3 nodes are available"
    assert not scheduling_words(pod_manifest(status={"conditions": [said | {"status": "True"}]}))
    assert not scheduling_words(pod_manifest())
