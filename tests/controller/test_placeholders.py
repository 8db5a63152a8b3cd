"""Placeholders of an operator that runs under its own account and is killed: none outlives the wait of its pod.

Kubelets, scheduler and policies are real. No autoscaler is: ``make autoscaler`` tries one.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, SYSTEM, Cluster, pod
from tests.operator_account import operator_account
from tests.operator_process import Operator, metrics_flag
from tests.waiting import eventually

from topomend.kube.resources import PODS
from topomend.relaunch.placeholder import Placeholder, read_placeholder
from topomend.wire.group import PLACEHOLDER_GATE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HASTE = {"reconcile.autoscaling.placeholders.CHECK_SECONDS": 0.0}
"""Placeholders are looked at each time that the duty is done: one that stands for no pod goes the second time."""


@pytest.fixture
def both_full(fragmented: Cluster) -> Iterator[Cluster]:
    """Three CPUs are free on each node, at most two on one NUMA node."""
    for number in range(2):
        fragmented.occupy(NODE_B, f"fills-{number}", 2)
    yield fragmented
    fragmented.remove_all()


def placeholders(cluster: Cluster) -> list[Placeholder]:
    contents = cluster.client.list(PODS, namespace=SYSTEM).items
    return [read_placeholder(content) for content in contents if gates_of(content) == [PLACEHOLDER_GATE]]


def gates_of(content: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in content["spec"].get("schedulingGates", ())]


def asks(cluster: Cluster, uid: str) -> bool:
    return [(item.stands_for[2], item.unschedulable) for item in placeholders(cluster)] == [(uid, True)]


def test_a_refused_pod_has_a_placeholder_until_a_node_admits_it_whoever_dies_meanwhile(
    both_full: Cluster, tmp_path: Path, start_operator: Callable[..., Operator]
) -> None:
    with operator_account(both_full, tmp_path) as kubeconfig:
        first = start_operator("--placeholders", kubeconfig=kubeconfig)
        first.wait_until_it_watches()
        refused = both_full.create(pod("waits", 3, node=NODE_A, annotations={"topomend.io/relaunch-pinned": "true"}))
        uid = refused["metadata"]["uid"]
        eventually("a placeholder", lambda: asks(both_full, uid))
        (made,) = placeholders(both_full)
        first.kill()
        second = start_operator("--placeholders", metrics_flag(), kubeconfig=kubeconfig, constants=HASTE)
        second.wait_until_it_watches()
        second.has_done("placeholders", 3)
        assert [item.uid for item in placeholders(both_full)] == [made.uid]
        second.kill()
        both_full.vacate(NODE_B, "fills-0")
        both_full.vacate(NODE_B, "fills-1")
        third = start_operator("--placeholders", kubeconfig=kubeconfig)
        eventually("the pod to run", lambda: both_full.running("waits"))
        eventually("no placeholder to be left", lambda: placeholders(both_full) == [])
        assert "Traceback" not in first.text() + second.text() + third.text()
        assert "placeholders stand" not in first.text()
