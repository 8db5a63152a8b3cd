"""The bounds on one namespace's records: other namespaces do not feel them."""

from dataclasses import replace

from tests.builders import snapshot_of
from tests.clock import Clock

from topomend.cache.snapshot import Snapshot
from topomend.model.relaunch_record import Relaunch, Step
from topomend.reconcile.refused.record_limits import BURST, MAX_BLOCKED, MAX_OPEN, RATE, RecordLimits

RECORD = Relaunch("tenant", "p-1", "p", "1", "a", "TopologyAffinityError", "", 1)


def having(number: int, step: Step = Step.RECORDED) -> Snapshot:
    """A snapshot in which the tenant has this many records at this step."""
    records = {("tenant", f"p-{index}"): replace(RECORD, name=f"p-{index}", step=step) for index in range(number)}
    return replace(snapshot_of(), relaunches=records)


def test_a_namespace_gets_new_records_at_a_rate_of_its_own() -> None:
    clock = Clock()
    limits = RecordLimits(clock)
    given = [limits.may_wait_with_record(having(0), "tenant") for _ in range(2 * BURST)]
    assert given == [True] * BURST + [False] * BURST
    assert limits.may_wait_with_record(having(0), "other")
    clock.now += 1 / RATE
    assert [limits.may_wait_with_record(having(0), "tenant") for _ in range(2)] == [True, False]


def test_a_namespace_has_so_many_open_records_and_no_more() -> None:
    limits = RecordLimits(Clock())
    assert limits.may_wait_with_record(having(MAX_OPEN - 1), "tenant")
    assert not limits.may_wait_with_record(having(MAX_OPEN), "tenant")
    assert limits.may_wait_with_record(having(MAX_OPEN), "other")


def test_a_namespace_whose_replacements_are_not_accepted_starts_no_more_relaunches() -> None:
    limits = RecordLimits(Clock())
    assert limits.why_not_start(having(MAX_BLOCKED - 1, Step.BLOCKED), "tenant") == ""
    assert "blocked" in limits.why_not_start(having(MAX_BLOCKED, Step.BLOCKED), "tenant")
    assert limits.why_not_start(having(MAX_BLOCKED, Step.BLOCKED), "other") == ""
    assert limits.why_not_start(having(MAX_BLOCKED, Step.CREATED), "tenant") == ""
