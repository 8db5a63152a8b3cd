"""When an unchanged object is read again."""

import pytest
from tests.clock import Clock

from topomend.publish.recheck import RECHECK_SECONDS, Recheck


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.75), (0.5, 0.875), (1.0, 1.0)])
def test_a_recheck_is_due_at_once_and_then_after_its_share_of_the_longest_time(jitter: float, share: float) -> None:
    clock = Clock(0.0)
    recheck = Recheck(clock, lambda: jitter)
    assert recheck.due()
    clock.now = RECHECK_SECONDS * share - 0.001
    assert not recheck.due()
    clock.now = RECHECK_SECONDS * share
    assert recheck.due()
    assert not recheck.due()
