"""A steered namespace: pods are fitted before they are scheduled, so that no kubelet ever refuses one."""

from functools import partial
from typing import Any

import pytest
from tests.audit_log import audited
from tests.clusters import (
    COLLECTOR_SECONDS,
    DEPLOYMENTS,
    NODE_A,
    NODE_B,
    Cluster,
    events_of,
    pod,
    priority_class,
    shown,
)
from tests.controller.conftest import NAMESPACE
from tests.operator_process import Operator
from tests.waiting import awake, eventually, stretched

from topomend.kube.resources import Resource
from topomend.wire.pods.pod_group import KUEUE, KUEUE_SIZE, LABELS
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("agents", "steered")]

JOBS = Resource("batch/v1", "jobs")
HOLES = 4
"""How many pods of three CPUs the two empty nodes hold: one on each NUMA node."""


def test_replicas_that_do_not_fit_are_never_refused_and_run_within_five_seconds_of_a_hole(
    two_nodes: Cluster, operator: Operator
) -> None:
    for name in ("filler-0", "filler-1"):
        two_nodes.create(pod(name, 2, node=NODE_A))
        eventually(f"{name} to run", partial(two_nodes.running, name))
    before = _created(two_nodes)  # by ReplicaSets of other tests
    eventually("the agent to publish them", lambda: {"filler-0", "filler-1"} <= shown(two_nodes, NODE_A))
    made = two_nodes.client.create(DEPLOYMENTS, _deployment(2), NAMESPACE)
    try:
        waiting = eventually("both replicas to be created", lambda: _both(_steered(two_nodes)))
        eventually("the wait to be told", lambda: events_of(two_nodes, waiting[0], "UngateDeferred"))
        # Seconds later.
        eventually(
            "autoscalers to count them",
            lambda: all(read_watched_pod(content).asks_for_node for content in _steered(two_nodes)),
        )
        assert [content["metadata"]["name"] for content in _steered(two_nodes)] == [
            content["metadata"]["name"] for content in waiting
        ]
        two_nodes.remove(two_nodes.get("filler-1"))
        removed = awake()
        (running,) = eventually("a replica to run", lambda: _running(two_nodes))
        took = awake() - removed
        print(f"hole to running, s: {took:.2f}")
        assert running["spec"]["nodeName"] == NODE_A
        assert took < stretched(5)
        assert _refused(two_nodes) == []
        assert _created(two_nodes) - before == 2
        assert "Traceback" not in operator.text()
    finally:
        two_nodes.client.delete(DEPLOYMENTS, "web-steered", NAMESPACE, uid=made["metadata"]["uid"])
        eventually("no replica to be left", lambda: not _steered(two_nodes), COLLECTOR_SECONDS)


def test_of_twenty_pods_at_once_as_many_run_as_fit_the_oldest_first_and_none_is_refused(
    two_nodes: Cluster, operator: Operator
) -> None:
    names = [f"train-{number:02d}" for number in range(20)]
    for name in names:
        two_nodes.create(pod(name, 3), NAMESPACE)
    for end in range(HOLES, 3 * HOLES):
        eventually(f"{end} pods to have run", lambda: len(_running(two_nodes)) == HOLES)
        running = _running(two_nodes)
        assert _names(running) == names[end - HOLES : end]
        ended = awake()
        two_nodes.remove(running[0])
        successor = names[end]
        eventually(f"{successor} to run", partial(_runs, two_nodes, successor))
        took = awake() - ended
        assert took < stretched(5), f"{successor}: {took:.1f} s\n{operator.text()}"
    assert _refused(two_nodes) == []
    assert {content["spec"]["nodeName"] for content in _running(two_nodes)} == {NODE_A, NODE_B}
    assert "Traceback" not in operator.text()


def test_a_pod_of_higher_priority_gets_the_first_place_that_comes_free(two_nodes: Cluster, operator: Operator) -> None:
    for number in range(HOLES):
        two_nodes.create(pod(f"first-{number}", 3), NAMESPACE)
    eventually("all places to be taken", lambda: len(_running(two_nodes)) == HOLES)
    with priority_class(two_nodes, "before-others", 1000, preemptionPolicy="Never"):
        two_nodes.create(pod("old", 3), NAMESPACE)
        content = pod("urgent", 3)
        content["spec"]["priorityClassName"] = "before-others"
        two_nodes.create(content, NAMESPACE)
        for name in ("old", "urgent"):
            waiting = two_nodes.get(name, NAMESPACE)
            eventually(f"{name} to wait", partial(events_of, two_nodes, waiting, "UngateDeferred"))
        two_nodes.remove(two_nodes.get("first-0", NAMESPACE))
        eventually("the urgent one to run", partial(_runs, two_nodes, "urgent"))
        assert not _runs(two_nodes, "old")
        assert _refused(two_nodes) == []
        assert "Traceback" not in operator.text()


def test_a_pod_whose_way_is_barred_by_pods_of_lower_priority_runs_within_ten_seconds(
    two_nodes: Cluster, operator: Operator
) -> None:
    for number in range(HOLES):
        two_nodes.create(pod(f"batch-{number}", 3), NAMESPACE)
    eventually("all places to be taken", lambda: len(_running(two_nodes)) == HOLES)
    with priority_class(two_nodes, "urgent", 1000):
        content = pod("urgent", 3)
        content["spec"]["priorityClassName"] = "urgent"
        began = awake()
        two_nodes.create(content, NAMESPACE)
        eventually("the urgent pod to run", partial(_runs, two_nodes, "urgent"))
        took = awake() - began
        print(f"created to running, s: {took:.2f}")
        assert took < stretched(10), operator.text()
        assert len(_running(two_nodes)) == HOLES, "one pod had to leave"
        assert _refused(two_nodes) == []
        assert "Traceback" not in operator.text()


def test_of_two_groups_that_need_the_same_room_one_runs_as_a_whole_and_then_the_other(
    two_nodes: Cluster, operator: Operator
) -> None:
    """Pod by pod each group would get two of the four places, and wait for the third for ever."""
    labels = {name: {LABELS[KUEUE]: name} for name in ("one", "two")}
    for number in range(3):
        for name, label in labels.items():
            content = pod(f"{name}-{number}", 3, labels=label, annotations={KUEUE_SIZE: "3"})
            two_nodes.create(content, NAMESPACE)
    running = eventually("a group to run", lambda: _group_of_three(_running(two_nodes)))
    first = running[0]["metadata"]["labels"][LABELS[KUEUE]]
    assert all(content["metadata"]["labels"] == labels[first] for content in running)
    second = next(name for name in labels if name != first)
    waiting = [content for content in _steered(two_nodes) if content["metadata"]["labels"] == labels[second]]
    eventually(
        "the wait to be explained",
        lambda: any(
            "pods that wait together fit" in event["note"]
            for content in waiting
            for event in events_of(two_nodes, content, "UngateDeferred")
        ),
    )
    assert all(content["spec"].get("schedulingGates") for content in waiting)
    two_nodes.remove(running[0])
    # The operator hears of its end before it hears of this one, which is let go beside the others.
    small = two_nodes.create(pod("small", 1), NAMESPACE)
    eventually("a later pod to run", partial(_runs, two_nodes, "small"))
    assert len(_running(two_nodes)) == 3, "one place came free too few"
    two_nodes.remove(small)
    two_nodes.remove(running[1])
    eventually("the other group to run", lambda: len(_running(two_nodes)) == 4)
    assert {f"{second}-{number}" for number in range(3)} <= set(_names(_running(two_nodes)))
    assert _refused(two_nodes) == []
    assert "Traceback" not in operator.text()


def _group_of_three(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return pods if len(pods) == 3 else []


def test_a_job_that_may_not_fail_even_once_completes(two_nodes: Cluster, operator: Operator) -> None:
    """Of six pods side by side four find room; without steering the fifth would be refused, and the Job over."""
    made = two_nodes.client.create(JOBS, _job(parallelism=HOLES + 2), NAMESPACE)
    try:
        ended = eventually("the Job to end", lambda: _conditions(two_nodes.client.get(JOBS, "strict", NAMESPACE)))
        assert ended["Complete"] == "True", (ended, operator.text())
        assert not _refused(two_nodes)
        assert "Traceback" not in operator.text()
    finally:
        two_nodes.client.delete(JOBS, "strict", NAMESPACE, uid=made["metadata"]["uid"])


def _job(parallelism: int) -> dict[str, Any]:
    template = pod("", 3)
    template["spec"]["restartPolicy"] = "Never"
    template["spec"]["containers"][0] |= {"image": "sandbox/sleep", "command": ["sleep", "2"]}
    spec = {"parallelism": parallelism, "completions": parallelism, "backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "strict"}, "spec": spec}


def _conditions(job: dict[str, Any]) -> dict[str, str]:
    conditions = {condition["type"]: condition["status"] for condition in job.get("status", {}).get("conditions", ())}
    return conditions if {"Complete", "Failed"} & conditions.keys() else {}


def _deployment(replicas: int) -> dict[str, Any]:
    replica = pod("", 3)
    replica["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_A}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": replica["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web-steered"}, "spec": spec}


def _steered(cluster: Cluster) -> list[dict[str, Any]]:
    steered = [content for content in cluster.pods() if content["metadata"]["namespace"] == NAMESPACE]
    return sorted(steered, key=lambda content: str(content["metadata"]["name"]))


def _both(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return pods if len(pods) == 2 else []


def _running(cluster: Cluster) -> list[dict[str, Any]]:
    return [content for content in _steered(cluster) if content["status"].get("phase") == "Running"]


def _runs(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get(name, NAMESPACE)["status"].get("phase") == "Running")


def _refused(cluster: Cluster) -> list[str]:
    return _names([content for content in _steered(cluster) if content["status"].get("phase") == "Failed"])


def _names(pods: list[dict[str, Any]]) -> list[str]:
    return [str(content["metadata"]["name"]) for content in pods]


def _created(cluster: Cluster) -> int:
    """How many pods ReplicaSets ever created there, by the audit log."""
    assert cluster.sandbox.audit_log
    return sum(
        event["verb"] == "create"
        and event["stage"] == "ResponseComplete"
        and event["objectRef"].get("resource") == "pods"
        and event["objectRef"].get("namespace") == NAMESPACE
        and not event["objectRef"].get("subresource")
        and "replicaset" in event["user"]["username"]
        for event in audited(cluster.sandbox.audit_log)
        if "objectRef" in event
    )
