"""A real Kueue starts no Job whose pods a kubelet would refuse, and starts each once there is room for it.

Slow: Kueue is built, and two clusters start.
"""

from pathlib import Path

import pytest
from verify.kueue.__main__ import REQUEUED_SECONDS, run

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(1800)]

JOBS = 24


def test_no_pod_is_refused_where_the_check_is_asked(tmp_path: Path) -> None:
    outcome, waits = run(JOBS, 3, tmp_path / "checked", checked=True, waiters=2)
    assert (outcome.ended, outcome.refused) == (JOBS, set())
    assert outcome.retries
    assert max(waits) < REQUEUED_SECONDS


def test_pods_are_refused_where_it_is_not(tmp_path: Path) -> None:
    outcome, _ = run(JOBS, 3, tmp_path / "alone", checked=False)
    assert outcome.refused
