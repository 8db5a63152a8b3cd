"""When a pod came and ended, by its object."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.cli.numa.served_lists import started_pod

from topomend.cli.numa.cluster.pods.arrivals import Arrivals, LeftOut
from topomend.cli.numa.cluster.pods.stays import REFUSED, read_stay, stays_in
from topomend.decide.simulation.history import Stay

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
ONE = "cpu=1 memory=1Mi"


def ended_pod(name: str, start: int, *ends: int, phase: str = "Succeeded", **status: Any) -> dict[str, Any]:
    """A pod of whose containers each ended so many seconds after midnight."""
    content = started_pod(name, ONE, node="a", start=start)
    terminated = [{"terminated": {"finishedAt": f"2026-01-01T00:00:{end:02d}Z"}} for end in ends]
    content["status"] |= {"phase": phase, "containerStatuses": [{"name": "c0", "state": each} for each in terminated]}
    content["status"] |= status
    return content


def read(content: dict[str, Any], begin: float = 0.0) -> list[tuple[float, float | None]]:
    stays = [each for each in read_stay(content, begin) if isinstance(each, Stay)]
    return [(each.came - MIDNIGHT, None if each.ended is None else each.ended - MIDNIGHT) for each in stays]


def test_a_pod_came_when_its_kubelet_saw_it_and_ended_with_its_last_container() -> None:
    assert read(ended_pod("p", 3, 7, 9, 8)) == [(3.0, 9.0)]
    assert read(ended_pod("p", 3, 5, phase="Failed")) == [(3.0, 5.0)]


def test_a_pod_that_runs_or_waits_has_not_ended() -> None:
    assert read(started_pod("p", ONE, node="a", start=3)) == [(3.0, None)]
    assert read(started_pod("p", ONE, start=4)) == [(4.0, None)]
    restarted = ended_pod("p", 3, 5, phase="Running")
    assert read(restarted) == [(3.0, None)]


def test_a_pod_that_ended_before_the_time_asked_about_is_not_there() -> None:
    assert read(ended_pod("p", 3, 9), MIDNIGHT + 9) == [(3.0, 9.0)]
    assert read(ended_pod("p", 3, 9), MIDNIGHT + 9.1) == []


def test_a_pod_that_a_kubelet_refused_is_left_out() -> None:
    """Its next pod counts, and nobody knows how long it would have run."""
    refused = ended_pod("p", 3, phase="Failed", reason="TopologyAffinityError")
    assert list(read_stay(refused, 0.0)) == [LeftOut("default", "p", REFUSED)]
    assert list(read_stay(ended_pod("p", 3), 0.0)) == [LeftOut("default", "p", "it has ended, and nothing says when")]


@pytest.mark.parametrize("moment", ["yesterday", 7, "", "0001-01-01T00:00:00"])
def test_a_malformed_time_is_named(moment: Any) -> None:
    content = ended_pod("p", 3, 9)
    content["status"]["startTime"] = moment
    (left_out,) = read_stay(content, 0.0)
    assert isinstance(left_out, LeftOut)
    assert "status.startTime" in left_out.why


def test_the_time_of_a_record_ends_with_what_happened_last() -> None:
    pods = [ended_pod("old", 1, 2), ended_pod("new", 4, 30), started_pod("runs", ONE, node="a", start=0)]
    assert _names(stays_in(pods, timedelta(seconds=10))) == ["runs", "new"]
    assert _names(stays_in(pods, timedelta(seconds=28))) == ["runs", "old", "new"]
    assert _names(stays_in([], timedelta(seconds=28))) == []


def _names(arrivals: Arrivals) -> list[str]:
    assert [stay.arrival for stay in arrivals.stays] == list(arrivals.pods)
    return [stay.arrival.pod.name for stay in arrivals.stays]
