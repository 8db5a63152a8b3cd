from datetime import UTC, datetime, timedelta

import pytest
from tests.watch.test_events import STATE

from topomend.watch import events
from topomend.watch.reading import published
from topomend.wire.node_topology import Condition, Summary, node_topology, status_of

DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def content(ready: str = "True", **status: object) -> dict[str, object]:
    made = node_topology("a", {**status_of(STATE, Summary(), (Condition("Ready", ready, "R", "why"),)), **status})
    return {**made, "metadata": {"name": "a", "resourceVersion": "7"}}


def test_the_heartbeat_is_read_with_its_age() -> None:
    found = published(content(heartbeatTime="2026-01-02T03:04:05Z"), DATE + timedelta(seconds=90), 5.0)
    assert found == events.Published(STATE, "7", "", events.Heartbeat("2026-01-02T03:04:05Z", 90.0, 5.0))


@pytest.mark.parametrize("time", [None, 7, "", "noon", "2026-01-02T03:04:05", "9999-99-99T00:00:00Z", ["x"]])
def test_what_is_no_time_is_no_heartbeat(time: object) -> None:
    found = published(content(heartbeatTime=time), DATE)
    assert isinstance(found, events.Published)
    assert found.heartbeat is None


def test_a_node_that_is_not_ready_and_one_without_status_are_told_as_such() -> None:
    found = published(content("False"), DATE)
    assert isinstance(found, events.Published)
    assert found.problem == "its agent says R: why"
    unwritten = {"metadata": {"name": "a"}}
    assert published(unwritten, DATE) == events.Unreadable("a", "its agent has not published yet")
