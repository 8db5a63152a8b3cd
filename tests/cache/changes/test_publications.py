"""What agents publish, and for how long it is trusted."""

from dataclasses import replace

from tests.builders import applied, guaranteed_pod, node_state, pod_allocation

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.nodes.node_state import NodeState

EMPTY = node_state()
PUBLISHED = changes.Published(EMPTY, "3")


def test_an_older_publication_changes_nothing() -> None:
    snapshot = applied(changes.Published(EMPTY, "10"))
    assert applied(changes.Published(replace(EMPTY, pods=(pod_allocation("x"),)), "9"), to=snapshot) is snapshot


def test_an_unreadable_publication_takes_the_readable_one_away_until_the_next() -> None:
    snapshot = applied(PUBLISHED, changes.Unreadable("a", "no machine"))
    assert (dict(snapshot.publications), dict(snapshot.unreadable)) == ({}, {"a": "no machine"})
    assert not applied(changes.Published(EMPTY, "4"), to=snapshot).unreadable


def heartbeat(version: str, time: str, now: float, age: float = 0.0, state: NodeState = EMPTY) -> changes.Published:
    return changes.Published(state, version, heartbeat=changes.Heartbeat(time, age, now))


def problem(snapshot: Snapshot) -> str:
    return snapshot.publications["a"].problem


def test_an_agent_that_confirms_nothing_for_half_an_hour_is_no_longer_trusted() -> None:
    snapshot = applied(heartbeat("3", "t1", 100.0), changes.TimePassed(100.0 + changes.SILENT_SECONDS - 1))
    assert problem(snapshot) == ""
    snapshot = applied(changes.TimePassed(100.0 + changes.SILENT_SECONDS), to=snapshot)
    assert problem(snapshot) == changes.SILENT
    assert applied(changes.TimePassed(9999.0), to=snapshot) is snapshot


def test_a_heartbeat_keeps_the_publication_its_version_and_its_assumed_pods() -> None:
    snapshot = applied(heartbeat("3", "t1", 100.0), changes.PodAssumed(guaranteed_pod(), ("a",), 110.0))
    confirmed = applied(heartbeat("9", "t2", 700.0, state=replace(EMPTY)), to=snapshot)
    before, after = snapshot.publications["a"], confirmed.publications["a"]
    assert after.state is before.state
    assert after.state_with_assumed() is before.state_with_assumed()
    assert (after.version, after.confirmed, after.heard) == ("3", "9", 700.0)
    assert applied(heartbeat("9", "t2", 800.0), to=confirmed) is confirmed
    assert problem(applied(changes.TimePassed(700.0 + changes.SILENT_SECONDS - 1), to=confirmed)) == ""


def test_an_agent_that_is_heard_again_is_trusted_again() -> None:
    snapshot = applied(heartbeat("3", "t1", 100.0), changes.TimePassed(100.0 + changes.SILENT_SECONDS))
    assert problem(applied(heartbeat("4", "t2", 2500.0), to=snapshot)) == ""


def test_an_old_publication_is_not_trusted_when_it_is_first_seen() -> None:
    assert problem(applied(heartbeat("3", "t1", 5.0, age=changes.SILENT_SECONDS))) == changes.SILENT
    snapshot = applied(heartbeat("3", "t1", 5.0, age=1000.0))
    assert problem(snapshot) == ""
    assert problem(applied(changes.TimePassed(5.0 + 800.0), to=snapshot)) == changes.SILENT


def test_a_heartbeat_that_arrives_counts_whatever_the_clock_of_the_agent_says() -> None:
    slow = applied(heartbeat("3", "t1", 5.0, age=7200.0))
    assert problem(slow) == changes.SILENT
    assert problem(applied(heartbeat("4", "t2", 605.0, age=7200.0), to=slow)) == ""
    fast = applied(heartbeat("3", "t1", 5.0, age=-7200.0))
    assert problem(applied(changes.TimePassed(5.0 + changes.SILENT_SECONDS), to=fast)) == changes.SILENT


def test_an_agent_without_heartbeats_is_trusted_as_long_as_its_object_exists() -> None:
    assert problem(applied(PUBLISHED, changes.TimePassed(1e9))) == ""


def test_a_problem_that_the_agent_reports_stays() -> None:
    snapshot = applied(changes.Published(EMPTY, "3", "not ready", changes.Heartbeat("t1", 9999.0, 1.0)))
    assert problem(applied(changes.TimePassed(1e9), to=snapshot)) == "not ready"
