"""Work that needs a right which may be missing rests, and the log says so once."""

import logging

import pytest
from tests.clock import Clock

from topomend.kube.errors import Forbidden, NotFound
from topomend.reconcile.optional_right import OFF_SECONDS, OptionalRight


def test_work_without_its_right_rests_and_is_tried_again_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    right = OptionalRight(logging.getLogger("work"), "nothing is done", clock)
    assert not right.is_missing
    for _ in range(2):
        with right.used():
            raise Forbidden(403, "Forbidden", "no")
        assert right.is_missing
        clock.now += OFF_SECONDS
        assert not right.is_missing
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("nothing is done: ")


def test_another_error_is_its_callers() -> None:
    right = OptionalRight(logging.getLogger("work"), "nothing is done", Clock())
    with pytest.raises(NotFound), right.used():
        raise NotFound(404, "NotFound", "gone")
    assert not right.is_missing
