"""The conditions of a record at each step and while its pod waits."""

from dataclasses import replace

import pytest

from topomend.model.condition import Condition
from topomend.model.relaunch_record import Relaunch, Step
from topomend.relaunch.conditions import NEVER, SUCCEEDED, at_step, waiting

RECORD = Relaunch("ns", "p-1", "p", "1", "a", "TopologyAffinityError", "", 1, {})
EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (Step.RECORDED, "Unknown"),
        (Step.CREATED, "Unknown"),
        (Step.BLOCKED, "Unknown"),
        (Step.LAUNCHED, "True"),
        (Step.CANCELLED, "False"),
        (Step.SUPERSEDED, "False"),
    ],
)
def test_succeeded_is_unknown_until_the_relaunch_ends(step: Step, status: str) -> None:
    assert at_step(RECORD, step, "why", NOW) == (Condition(SUCCEEDED, status, step.value, "why", NOW),)


def test_a_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    created = replace(RECORD, conditions=at_step(RECORD, Step.CREATED, "", EARLIER))
    [blocked] = at_step(created, Step.BLOCKED, "quota", NOW)
    assert (blocked.reason, blocked.last_transition_time) == ("Blocked", EARLIER)
    [launched] = at_step(created, Step.LAUNCHED, "", NOW)
    assert launched.last_transition_time == NOW


def test_a_pod_that_waits_has_its_reason_in_both_conditions() -> None:
    assert waiting(RECORD, "NoNodeAdmits", "1 cpu", NOW, never=False) == (
        Condition(SUCCEEDED, "Unknown", "NoNodeAdmits", "1 cpu", NOW),
        Condition(NEVER, "False", "NoNodeAdmits", "", NOW),
    )


def test_an_infeasible_pod_says_so_until_its_relaunch_goes_on() -> None:
    conditions = waiting(RECORD, "NoNodeAdmits", "too large", EARLIER, never=True)
    assert conditions == (
        Condition(SUCCEEDED, "Unknown", NEVER, "too large", EARLIER),
        Condition(NEVER, "True", NEVER, "too large", EARLIER),
    )
    _, retracted = at_step(replace(RECORD, conditions=conditions), Step.COMMITTED, "", NOW)
    assert retracted == Condition(NEVER, "False", "NodeAdmits", "", NOW)
