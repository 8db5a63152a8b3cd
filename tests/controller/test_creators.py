"""No user gets a pod through the operator that the user may not create, with the installed account and policies."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster, events_of, pod
from tests.deploy.api import API
from tests.installed_operator import PODS, ROLES, admin, is_stamped, operator, start, user_of_pods
from tests.operator_process import Operator
from tests.waiting import eventually

__all__ = ["admin", "operator", "start"]  # the fixtures

pytestmark = pytest.mark.cluster


@pytest.fixture
def tenant(admin: API) -> API:
    """Somebody who may create pods in the namespace, until his role is taken away."""
    one = user_of_pods(admin, "tenant", "create", "get", "patch")
    eventually("the role and the stamp", lambda: is_stamped(one.apply(f"{PODS}/probe", pod("probe", 1), dry_run=True)))
    return one


def _may_not(tenant: API) -> bool:
    return bool(tenant.apply(f"{PODS}/probe", pod("probe", 1), dry_run=True).code == 403)


def _record(cluster: Cluster) -> dict[str, Any]:
    """The one record; empty while there is none."""
    records = cluster.records()
    assert len(records) <= 1
    return records[0] if records else {}


def _succeeded(cluster: Cluster, reason: str) -> dict[str, Any] | None:
    conditions = _record(cluster).get("status", {}).get("conditions", ())
    return next(
        (condition for condition in conditions if condition["type"] == "Succeeded" and condition["reason"] == reason),
        None,
    )


def test_a_pod_is_relaunched_for_its_creator_and_still_says_who_that_is(
    fragmented: Cluster, operator: Operator, tenant: API
) -> None:
    made = tenant.create(PODS, pod("train", 3, preferred=NODE_A)).content
    moved = eventually("train to run again", lambda: _anew(fragmented, made))
    assert moved["spec"]["nodeName"] == NODE_B
    stamp = "topomend.io/creator"
    assert moved["metadata"]["annotations"][stamp] == made["metadata"]["annotations"][stamp]
    assert moved["metadata"]["annotations"][stamp] == "system:serviceaccount:default:tenant"
    assert "Traceback" not in operator.text()


def test_a_pod_whose_creator_may_create_none_any_more_stays_and_its_record_says_why(
    fragmented: Cluster, start: Callable[[], Operator], admin: API, tenant: API
) -> None:
    made = tenant.create(PODS, pod("train", 3, preferred=NODE_A)).content
    eventually("the refusal", lambda: fragmented.phase("train") == "Failed")
    assert admin.delete(f"{ROLES}/rolebindings/tenant").allowed
    eventually("the role to be gone", lambda: _may_not(tenant))
    operator = start()
    condition = eventually("the condition", lambda: _succeeded(fragmented, "CreatorMayNot"))
    assert condition["message"] == (
        "system:serviceaccount:default:tenant, who created it, may not create pods in default any more"
    )
    deferred = eventually("the event", lambda: events_of(fragmented, made, "RelaunchDeferred"))
    assert deferred[0]["note"].startswith(condition["message"])
    assert fragmented.get("train")["metadata"]["uid"] == made["metadata"]["uid"]
    assert "finalizers" not in fragmented.get("train")["metadata"]
    assert "Traceback" not in operator.text()


def test_a_pod_that_somebody_changed_is_left_to_people(
    fragmented: Cluster, start: Callable[[], Operator], tenant: API
) -> None:
    made = tenant.create(PODS, pod("train", 3, preferred=NODE_A)).content
    eventually("the refusal", lambda: fragmented.phase("train") == "Failed")
    evil = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
    assert tenant.patch(f"{PODS}/train", evil).allowed
    operator = start()
    events = eventually("the event", lambda: events_of(fragmented, made, "RelaunchSkipped"))
    assert events[0]["note"].startswith("train was changed after its creation (generation 2)")
    assert fragmented.get("train")["metadata"]["uid"] == made["metadata"]["uid"]
    assert not fragmented.records()
    assert "Traceback" not in operator.text()


def test_a_pod_that_the_api_server_would_not_take_again_stays(fragmented: Cluster, operator: Operator) -> None:
    privileged = pod("train", 3, preferred=NODE_A)
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    made = fragmented.create(privileged)
    condition = eventually("the condition", lambda: _succeeded(fragmented, "NotCreatable"))
    assert "pod-security.kubernetes.io/enforce=privileged" in condition["message"]
    assert fragmented.get("train")["metadata"]["uid"] == made["metadata"]["uid"]
    assert "finalizers" not in fragmented.get("train")["metadata"]
    assert "Traceback" not in operator.text()


def test_a_replacement_of_its_own_name_is_there_before_the_pod_goes(fragmented: Cluster, operator: Operator) -> None:
    content = pod("train", 3, preferred=NODE_A, annotations={"topomend.io/name-policy": "Suffix"})
    made = fragmented.create(content)
    moved = eventually("train-r1 to run", lambda: fragmented.running("train-r1"))
    assert moved["spec"]["nodeName"] == NODE_B
    assert moved["metadata"]["annotations"]["topomend.io/replaces"] == made["metadata"]["uid"]
    record = eventually("the record to end", lambda: _launched(fragmented))
    assert record["status"]["newPod"] == {"name": "train-r1", "uid": moved["metadata"]["uid"]}
    assert "train" not in {content["metadata"]["name"] for content in fragmented.pods()}
    assert "Traceback" not in operator.text()


def test_a_record_that_is_deleted_while_the_replacement_waits_is_written_again(
    fragmented: Cluster, start: Callable[[], Operator]
) -> None:
    fragmented.occupy(NODE_B, "filler-2", 2)
    fragmented.occupy(NODE_B, "filler-3", 2)
    annotations = {
        "topomend.io/record": "train-0123456789",
        "topomend.io/replaces": "0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11",
        "topomend.io/attempt": "1",
    }
    orphan = pod("train", 3, annotations=annotations)
    orphan["spec"]["schedulingGates"] = [{"name": "topomend.io/relaunch"}]
    fragmented.create(orphan)
    operator = start()
    record = eventually("the record", lambda: _record(fragmented))
    assert (record["spec"]["reason"], record["spec"]["pod"]["name"]) == ("RecordDeleted", "train")
    time.sleep(1)
    fragmented.vacate(NODE_B, "filler-3")
    running = eventually("train to run", lambda: fragmented.running("train"))
    assert running["spec"]["nodeName"] == NODE_B
    eventually("the record to end", lambda: _launched(fragmented))
    assert "Traceback" not in operator.text()


def _launched(cluster: Cluster) -> dict[str, Any] | None:
    record = _record(cluster)
    return record if record.get("status", {}).get("step") == "Launched" else None


def _anew(cluster: Cluster, old: dict[str, Any]) -> dict[str, Any] | None:
    current = cluster.running(old["metadata"]["name"])
    return current if current and current["metadata"]["uid"] != old["metadata"]["uid"] else None
