"""Which pods that a node does not publish yet may be about to hold something there."""

import pytest
from tests.builders import node_state, pod_manifest

from topomend.cache.starting_pod import may_come_to_hold

WHOLE = "cpu=2 memory=1Mi"
STATE = node_state(name="a")


def test_a_pod_that_starts_may_come_to_hold_what_it_asks_for_exclusively() -> None:
    assert may_come_to_hold(pod_manifest("p", WHOLE, status={"phase": "Pending"}), STATE)
    assert not may_come_to_hold(pod_manifest("p", "request:cpu=1", status={"phase": "Pending"}), STATE)


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_one_that_runs_or_has_ended_has_what_its_node_publishes(phase: str) -> None:
    assert not may_come_to_hold(pod_manifest("p", WHOLE, status={"phase": phase}), STATE)


def test_one_that_cannot_be_read_may_hold_anything() -> None:
    content = pod_manifest("p", WHOLE, status={"phase": "Pending"})
    content["spec"]["containers"] = "none"
    assert may_come_to_hold(content, STATE)
