"""The operator under the account that the manifests install, beside real agents: nothing is published by the test."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster, events_of, pod, shown
from tests.operator_account import operator_account
from tests.operator_process import Operator
from tests.waiting import awake, eventually, stretched

pytestmark = pytest.mark.cluster


@pytest.fixture
def account(two_nodes: Cluster, tmp_path: Path) -> Iterator[Path]:
    with operator_account(two_nodes, tmp_path) as kubeconfig:
        yield kubeconfig


@pytest.mark.usefixtures("agents")
def test_refused_pods_run_elsewhere_within_five_seconds_under_the_installed_account(
    two_nodes: Cluster, account: Path, start_operator: Callable[..., Operator]
) -> None:
    operator = start_operator("--leader-elect", kubeconfig=account)
    operator.wait_until_it_watches()
    eventually("the operator to lead", lambda: "this operator leads" in operator.text())
    fillers = {"filler-0", "filler-1"}
    for name in sorted(fillers):
        two_nodes.create(pod(name, 2, node=NODE_A))
        eventually(f"{name} to run", partial(two_nodes.running, name))
    eventually("the agent to publish them", lambda: fillers <= shown(two_nodes, NODE_A))
    time.sleep(1)
    took = [_relaunch(two_nodes, f"train-{number}") for number in range(10)]
    two_nodes.clear()
    print(f"refused to ungated, s: {sorted(round(ungate, 3) for ungate, _ in took)}")
    assert max(running for _, running in took) < stretched(5)
    assert "Forbidden" not in operator.text()
    assert "Traceback" not in operator.text()


def _relaunch(cluster: Cluster, name: str) -> tuple[float, float]:
    """Seconds from the refusal until the replacement was ungated, and until it ran."""
    made = cluster.create(pod(name, 3, preferred=NODE_A))
    eventually("the refusal", lambda: _is_refused(cluster, made))
    refused = awake()
    eventually("the replacement to be ungated", lambda: _is_ungated(cluster, made))
    ungate = awake()
    moved = eventually("the replacement to run", lambda: _anew(cluster, made, "Running"))
    running = awake()
    assert moved["spec"]["nodeName"] == NODE_B
    eventually("the event", lambda: events_of(cluster, moved, "Relaunched"))
    cluster.remove(moved)
    eventually("the agent to publish that it is gone", lambda: name not in shown(cluster, NODE_B))
    return ungate - refused, running - refused


def _is_refused(cluster: Cluster, made: dict[str, Any]) -> bool:
    """Whether it was: the failed pod may be gone before anybody looks."""
    current = cluster.get(made["metadata"]["name"])
    return bool(current["metadata"]["uid"] != made["metadata"]["uid"] or current["status"].get("phase") == "Failed")


def _anew(cluster: Cluster, made: dict[str, Any], phase: str = "") -> dict[str, Any] | None:
    current = cluster.get(made["metadata"]["name"])
    is_new = current["metadata"]["uid"] != made["metadata"]["uid"]
    return current if is_new and phase in ("", current["status"].get("phase")) else None


def _is_ungated(cluster: Cluster, made: dict[str, Any]) -> bool:
    replacement = _anew(cluster, made)
    return bool(replacement and not replacement["spec"].get("schedulingGates"))
