"""Pods of thousands of containers are answered in time: whoever may create pods must not hold the operator up."""

import time

import pytest
from tests.builders import node_state, pod

from topomend.replay.admission import admit

CONTAINERS = 10_000
MAX_SECONDS = 10.0
"""Of processor time, far above what it takes: asking every container about every other takes minutes."""


@pytest.mark.parametrize(
    ("scope", "cpu", "admitted"), [("container", 1, True), ("container", 1000, False), ("pod", 1000, False)]
)
def test_a_pod_of_ten_thousand_containers_has_its_verdict_in_time(scope: str, cpu: int, admitted: bool) -> None:
    huge = pod("huge", *[f"cpu={cpu}m memory=1"] * CONTAINERS)
    state = node_state(scope=scope)
    start = time.thread_time()
    verdict, _ = admit(state, huge)
    took = time.thread_time() - start
    print(f"{took:.2f} s")
    assert verdict.admitted == admitted
    assert took < MAX_SECONDS
