"""Kueue's objects as they are read, and what is written of a check."""

from typing import Any

import pytest

from topomend.model.pods.queued_workload import Flavor
from topomend.model.pods.scheduling import Toleration
from topomend.wire.document import MalformedObject
from topomend.wire.queued_workload import (
    CONTROLLER,
    active_status,
    answer,
    asked_checks,
    check_status,
    counts_as_active,
    inactive_status,
    is_active,
    is_ours,
    read_flavor,
    read_workload,
    requeued_at,
    with_additions,
)

NOW = "2026-01-01T00:00:00Z"


def condition(kind: str, reason: str = "", status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason}


def workload(**status: Any) -> dict[str, Any]:
    """A Workload of two pod sets, as Kueue writes it."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {"containers": [container], "nodeSelector": {"a": "b"}},
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid", "controller": True}
    return {
        "metadata": {
            "name": "job-train",
            "namespace": "team",
            "uid": "w",
            "resourceVersion": "7",
            "creationTimestamp": NOW,
            "ownerReferences": [owner],
        },
        "spec": {
            "priority": 5,
            "podSets": [
                {"name": "leader", "count": 1, "template": template},
                {"name": "main", "count": 4, "template": template},
            ],
        },
        "status": status,
    }


ADMISSION = {
    "clusterQueue": "pool",
    "podSetAssignments": [
        {"name": "leader", "count": 1, "flavors": {"cpu": "gpu", "memory": "gpu"}},
        {"name": "main", "count": 2, "flavors": {"cpu": "cpu", "memory": "gpu"}, "topologyAssignment": {"levels": []}},
    ],
}


def test_a_workload_with_quota() -> None:
    checks = [{"name": "numa", "state": "Pending", "message": "", "lastTransitionTime": NOW}]
    read = read_workload(workload(conditions=[condition("QuotaReserved")], admission=ADMISSION, admissionChecks=checks))
    assert (read.namespace, read.name, read.uid, read.version, read.owner) == ("team", "job-train", "w", "7", "job-uid")
    assert [(each.name, each.count, each.flavors, each.spread_by_kueue) for each in read.pod_sets] == [
        ("leader", 1, ("gpu",), False),
        ("main", 2, ("cpu", "gpu"), True),
    ]
    assert (read.priority, read.pods, read.reserved, read.admitted, read.over, read.evicted) == (
        5,
        3,
        True,
        False,
        False,
        "",
    )
    assert read.checks["numa"].state == "Pending"
    pod = read.pod_sets[1].pod
    assert (pod.name, pod.uid, pod.priority, pod.owner and pod.owner.uid) == ("job-train/main", "w/main", 5, "job-uid")
    assert pod.pod.containers[0].resources.requests["cpu"] == 3000
    assert pod.placement.node_selector == {"a": "b"}


def test_a_workload_that_waits_after_a_retry() -> None:
    check = {"name": "numa", "state": "Pending", "message": "Reset", "retryCount": 2}
    conditions = [condition("Evicted", "AdmissionCheck"), condition("QuotaReserved", status="False")]
    read = read_workload(workload(conditions=conditions, admissionChecks=[check], requeueState={"requeueAt": NOW}))
    assert (read.reserved, read.evicted, read.requeue_at) == (False, "AdmissionCheck", NOW)
    assert read.checks["numa"].retries == 2


@pytest.mark.parametrize("change", ["finished", "inactive", "deleted"])
def test_a_workload_that_is_over(change: str) -> None:
    content = workload(conditions=[condition("Finished")] if change == "finished" else [])
    content["spec"]["active"] = change != "inactive"
    if change == "deleted":
        content["metadata"]["deletionTimestamp"] = NOW
    assert read_workload(content).over


def test_a_malformed_workload_names_its_field() -> None:
    content = workload()
    content["spec"]["podSets"][0]["count"] = "many"
    with pytest.raises(MalformedObject, match=r"spec\.podSets\[0\]\.count"):
        read_workload(content)
    content["spec"]["podSets"] *= 5
    content["spec"]["podSets"][0]["count"] = 1
    for pod_set in content["spec"]["podSets"]:
        pod_set["count"] = 1
    with pytest.raises(MalformedObject, match="more than 8 pod sets"):
        read_workload(content)


def test_pods_have_what_flavors_and_other_checks_add() -> None:
    update = {"name": "main", "nodeSelector": {"zone": "z"}, "tolerations": [{"key": "t", "operator": "Exists"}]}
    others = [{"name": "provision", "state": "Ready", "podSetUpdates": [update]}]
    read = read_workload(workload(admissionChecks=others))
    flavor = read_flavor({"spec": {"nodeLabels": {"gpu": "yes"}, "tolerations": [{"key": "gpu", "value": "v"}]}})
    assert flavor == Flavor({"gpu": "yes"}, (Toleration("gpu", "Equal", "v"),))
    leader, main = (with_additions(each, [flavor], read.checks.values()).pod.placement for each in read.pod_sets)
    assert leader.node_selector == {"a": "b", "gpu": "yes"}
    assert main.node_selector == {"a": "b", "gpu": "yes", "zone": "z"}
    assert [toleration.key for toleration in main.tolerations] == ["gpu", "t"]


def test_whose_check_it_is_and_whether_it_is_answered() -> None:
    content: dict[str, Any] = {"metadata": {"name": "numa", "generation": 2}, "spec": {"controllerName": CONTROLLER}}
    assert is_ours(content)
    assert not is_ours({"spec": {"controllerName": "kueue.x-k8s.io/multikueue"}})
    assert not is_active(content)
    content["status"] = active_status(content, NOW)["status"]
    assert is_active(content)
    content["metadata"]["generation"] = 3
    assert not is_active(content)
    assert counts_as_active(content), "Kueue does not compare generations"
    content["status"] = inactive_status(content, NOW)["status"]
    assert not counts_as_active(content)


def test_the_checks_that_a_queue_asks() -> None:
    rules = [{"name": "numa"}, {"name": "other", "onFlavors": ["any"]}]
    assert asked_checks({"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}}) == ("numa", "other")
    assert asked_checks({"spec": {}}) == ()


def test_an_answer_is_for_the_version_that_was_read() -> None:
    read = read_workload(workload())
    entry = answer("numa", "Ready", "m" * 40_000, NOW, pins={"main": "node-1"}, label="kubernetes.io/hostname")
    applied = check_status(read, [entry])
    assert applied["metadata"] == {"name": "job-train", "namespace": "team", "uid": "w", "resourceVersion": "7"}
    (written,) = applied["status"]["admissionChecks"]
    assert len(written["message"]) == 32_768
    assert written["podSetUpdates"] == [{"name": "main", "nodeSelector": {"kubernetes.io/hostname": "node-1"}}]
    assert "podSetUpdates" not in answer("numa", "Retry", "", NOW)
    for when in (NOW, None):
        assert requeued_at(read, when) == {
            "metadata": {"uid": "w", "resourceVersion": "7"},
            "status": {"requeueState": {"requeueAt": when}},
        }
    assert requeued_at(read, NOW, any_version=True)["metadata"] == {"uid": "w"}
