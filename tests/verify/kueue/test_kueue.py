"""A real Kueue starts no Job whose pods a kubelet would refuse, and starts each once there is room for it.

Slow: Kueue is built, and three clusters start.
"""

from pathlib import Path

import pytest
from verify.kueue.__main__ import REQUEUED_SECONDS, Way, run

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(1800)]

JOBS = 24


def test_no_pod_is_refused_where_the_check_is_asked(tmp_path: Path) -> None:
    outcome, waits = run(JOBS, 3, tmp_path / "checked", Way.CHECKED, waiters=2)
    assert (outcome.ended, outcome.refused) == (JOBS, set())
    assert outcome.retries
    assert outcome.asked
    assert max(waits) < REQUEUED_SECONDS


def test_pods_are_refused_where_it_is_not(tmp_path: Path) -> None:
    outcome, _ = run(JOBS, 3, tmp_path / "alone", Way.ALONE)
    assert outcome.refused


def test_kueue_is_never_asked_without_the_component(tmp_path: Path) -> None:
    outcome, _ = run(4, 3, tmp_path / "off", Way.OFF)
    assert (outcome.ended, outcome.asked) == (4, 0)
