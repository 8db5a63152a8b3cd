"""Kills of the real operator. Slow: each kill needs another start. ``make soak KILLS=10000`` does more."""

from pathlib import Path

import pytest
from tests.seeds import SEED, cases
from verify.soak.soak import soak

KILLS = cases(4, 10)


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_kills_lose_no_pod_and_double_none(tmp_path: Path) -> None:
    report = soak(KILLS, SEED, tmp_path)
    print("\n".join(report.lines()))
    assert not report.lost
    assert not report.doubled
    assert not report.leftovers
    assert not report.faults
    assert sum(report.kills.values()) >= KILLS  # one more if both operators are killed when one kill is left
    assert report.relaunched >= KILLS // 2
