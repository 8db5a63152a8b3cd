"""The whole operator as a process against real kubelets: what they refuse is running elsewhere seconds later."""

import time
from collections.abc import Callable

import pytest
from tests.controller.conftest import NODE_A, NODE_B, Cluster, Operator, pod, wait_for

pytestmark = pytest.mark.cluster


def test_a_refused_bare_pod_runs_within_five_seconds_on_the_node_replay_named(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    operator = start_operator()
    wait_for("the operator to watch", lambda: "the operator runs" in operator.text())
    time.sleep(2)
    made = fragmented.create(pod("train", 3, preferred=NODE_A, labels={"app": "t"}, annotations={"note": "kept"}))
    begin = time.monotonic()
    moved = wait_for("train to run on numa-b", lambda: _running_anew(fragmented, made), 15)
    took = time.monotonic() - begin
    assert moved["spec"]["nodeName"] == NODE_B
    assert moved["metadata"]["labels"] == {"app": "t"}
    assert moved["metadata"]["annotations"]["note"] == "kept"
    assert took < 5, f"{took:.1f} s"


def _running_anew(cluster: Cluster, old: dict[str, dict[str, str]]) -> object:
    found = cluster.running("train")
    return found if found and found["metadata"]["uid"] != old["metadata"]["uid"] else None
