"""When a relaunch has ended, and what its replacement is called."""

from dataclasses import replace

import pytest

from topomend.model.condition import Condition
from topomend.model.relaunch_record import Relaunch, Step

RECORD = Relaunch("ns", "p-1", "p", "uid", "a", "TopologyAffinityError", "", 1, {})


@pytest.mark.parametrize("step", Step)
def test_a_relaunch_ends_with_its_launch_its_cancellation_or_its_successor(step: Step) -> None:
    ended = step in (Step.LAUNCHED, Step.CANCELLED, Step.SUPERSEDED)
    assert step.ended is ended
    assert replace(RECORD, step=step).is_open is not ended


def test_an_ended_relaunch_is_open_until_its_finalizer_is_gone() -> None:
    assert replace(RECORD, step=Step.LAUNCHED, protected=True).is_open


@pytest.mark.parametrize(("own_name", "name"), [("", "p"), ("p-r1", "p-r1")])
def test_a_replacement_has_the_pods_name_unless_its_record_names_another(own_name: str, name: str) -> None:
    record = replace(RECORD, own_name=own_name)
    assert (record.replacement_name, record.keeps_name) == (name, name == "p")


def test_a_condition_is_looked_up_by_its_type() -> None:
    succeeded = Condition("Succeeded", "True", "Launched")
    record = replace(RECORD, conditions=(Condition("Infeasible", "False", ""), succeeded))
    assert record.condition("Succeeded") == succeeded
    assert record.condition("Admissible") is None
