"""Two hundred kills of the real operator. Slow: each is another start of it. ``make soak KILLS=10000`` has more."""

import random
from pathlib import Path

import pytest
from tests.soak.soak import soak

KILLS = 200


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_two_hundred_kills_lose_no_pod_and_double_none(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    report = soak(KILLS, seed, tmp_path)
    print("\n".join(report.lines()))
    assert not report.lost
    assert not report.doubled
    assert not report.left_over
    assert not report.faults
    assert sum(report.kills.values()) >= KILLS  # one more where both operators are killed as the last is due
    assert report.relaunched > 40
