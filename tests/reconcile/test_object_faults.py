"""A fault of one object ends no loop over others; what concerns all objects does."""

import logging

import pytest
from tests.clock import Clock

from topomend.kube.errors import NotPermitted, Unanswered, refused
from topomend.reconcile.object_faults import REPEAT_SECONDS, ObjectFaults
from topomend.replay.effort import Overspent, TurnOver
from topomend.wire.document import MalformedObject

OWN: list[Exception] = [
    MalformedObject("spec.tolerations: more than 1000 values"),
    *(refused(status, b"{}") for status in (400, 403, 404, 409, 422, 431, 500, 503)),
    refused(429, b'{"details": {"causes": [{"reason": "DisruptionBudget"}]}}', "10"),
    refused(429, b'{"message": "admission webhook \\"quota.example\\" denied the request: later"}', "10"),
    KeyError("spec"),
]


@pytest.mark.parametrize("error", OWN, ids=repr)
def test_an_objects_own_fault_ends_its_turn_alone(error: Exception) -> None:
    faults, seen = ObjectFaults(logging.getLogger("work"), "nothing is done", Clock()), []
    for name in ("one", "two"):
        with faults.of("ns", name):
            seen.append(name)
            raise error
    assert seen == ["one", "two"]


OF_ALL: list[Exception] = [
    Unanswered("away"),
    NotPermitted("no lease"),
    refused(429, b"Too many requests, please try again later.", "1"),
    refused(429, b'{"reason": "TooManyRequests", "details": {"retryAfterSeconds": 1}}', "1"),
    Overspent("a"),
    TurnOver(),
]


@pytest.mark.parametrize("error", OF_ALL, ids=repr)
def test_what_concerns_all_objects_passes(error: Exception) -> None:
    faults = ObjectFaults(logging.getLogger("work"), "nothing is done", Clock())
    with pytest.raises(type(error)), faults.of("ns", "one"):
        raise error


def test_the_same_fault_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    faults = ObjectFaults(logging.getLogger("work"), "nothing is done", clock)
    for _ in range(3):
        with faults.of("ns", "one"):
            raise MalformedObject("spec: odd")
    clock.now += REPEAT_SECONDS
    with faults.of("ns", "one"):
        raise MalformedObject("spec: odd")
    assert [record.getMessage() for record in caplog.records] == ["ns/one: nothing is done: spec: odd"] * 2
