"""Which new pods of a steered namespace are gated at their creation, tried on a real API server."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.deploy.api import API, have_default_account
from tests.deploy.conftest import NAMESPACE
from tests.waiting import eventually

from topomend.wire import group

pytestmark = pytest.mark.cluster  # needs a real API server: admission policies run nowhere else

STEERED = "deploy-tests-steered"
STEERING = f"/apis/{group.API_VERSION}/namespaces/topomend-system/steerings/{group.STEERING_NAME}"
FIT = {"name": "topomend.io/fit"}

_names = (f"pod-{number}" for number in count())


def container(name: str = "c", **resources: Any) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": resources}


GUARANTEED = container(limits={"cpu": "2", "memory": "1Gi"})
BURSTABLE = container("b", requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi"})
BARE = container("bare")
DEVICE = container("d", requests={"cpu": "1"}, limits={"vendor.com/gpu": "1"})


def owner(kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "it", "uid": "1", "controller": True, **fields}


def pod(*containers: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    named = {"name": next(_names), **(metadata or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"containers": list(containers), **spec}}


@pytest.fixture(scope="module")
def steered(admin: API) -> Iterator[API]:
    """The administrator, once the policy is in force."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STEERED}}
    namespace["metadata"]["labels"] = {"topomend.io/steer": "enabled"}  # type: ignore[index]
    assert admin.apply(f"/api/v1/namespaces/{STEERED}", namespace).allowed
    have_default_account(admin, f"/api/v1/namespaces/{STEERED}")
    steering = {"apiVersion": group.API_VERSION, "kind": group.STEERING, "metadata": {"name": group.STEERING_NAME}}
    assert admin.apply(STEERING, steering).allowed
    eventually("the steering policy", lambda: FIT in gates(admin, pod(GUARANTEED)))
    yield admin
    admin.delete(STEERING)
    admin.delete(f"/api/v1/namespaces/{STEERED}")


def gates(api: API, content: dict[str, Any], namespace: str = STEERED) -> list[dict[str, str]]:
    path = f"/api/v1/namespaces/{namespace}/pods/{content['metadata']['name']}"
    answer = api.apply(path, content, dry_run=True)
    assert answer.allowed, answer.message
    gates: list[dict[str, str]] = answer.content["spec"].get("schedulingGates", [])
    return gates


@pytest.mark.parametrize(
    "content",
    [
        pod(GUARANTEED),
        pod(container(requests={"cpu": "2000m", "memory": "1024Mi"}, limits={"cpu": "2", "memory": "1Gi"})),
        pod(GUARANTEED, initContainers=[{**GUARANTEED, "name": "i"}]),
        pod(DEVICE),
        pod(BARE, DEVICE),
        pod(BARE, initContainers=[{**DEVICE, "name": "i"}]),
        pod(BARE, resources={"limits": {"cpu": "2", "memory": "1Gi"}}),
        pod(GUARANTEED, metadata={"ownerReferences": [owner("ReplicaSet")]}),
        pod(GUARANTEED, metadata={"ownerReferences": [owner("DaemonSet", controller=False)]}),
        pod(GUARANTEED, metadata={"annotations": {"topomend.io/relaunch": "no"}}),
    ],
    ids=[
        "Guaranteed by its limits",
        "Guaranteed, the same amounts written differently",
        "Guaranteed with an init container",
        "a device",
        "a device in one container",
        "a device in an init container",
        "Guaranteed by its own resources",
        "a replica",
        "owned by a DaemonSet that is not its controller",
        "a value that is none, of which the operator tells",
    ],
)
def test_a_pod_that_a_kubelet_would_align_is_gated(steered: API, content: dict[str, Any]) -> None:
    assert gates(steered, content) == [FIT]


@pytest.mark.parametrize(
    "content",
    [
        pod(BARE),
        pod(BURSTABLE),
        pod(GUARANTEED, BARE),
        pod(GUARANTEED, initContainers=[{**BURSTABLE, "name": "i"}]),
        pod(container(limits={"cpu": "2"})),
        pod(container(limits={"memory": "1Gi"})),
        pod(GUARANTEED, nodeName="deploy-tests-none"),
        pod(GUARANTEED, metadata={"ownerReferences": [owner("DaemonSet")]}),
        pod(GUARANTEED, priorityClassName="system-node-critical"),
        pod(GUARANTEED, priorityClassName="system-cluster-critical"),
        pod(GUARANTEED, metadata={"annotations": {"topomend.io/relaunch": "false"}}),
    ],
    ids=[
        "BestEffort",
        "Burstable",
        "Guaranteed beside BestEffort",
        "Burstable in an init container",
        "no memory limit",
        "no CPU limit",
        "bound to a node",
        "of a DaemonSet",
        "critical for its node",
        "critical for the cluster",
        "opted out",
    ],
)
def test_a_pod_that_no_kubelet_aligns_or_that_opted_out_is_not_touched(steered: API, content: dict[str, Any]) -> None:
    assert gates(steered, content) == []


def test_no_pod_is_gated_where_no_operator_keeps_the_parameter(steered: API) -> None:
    steering = steered.get(STEERING).content
    steered.delete(STEERING)
    eventually("the parameter's end", lambda: gates(steered, pod(GUARANTEED)) == [])
    metadata = {"name": steering["metadata"]["name"]}
    assert steered.apply(STEERING, {**steering, "metadata": metadata}).allowed
    eventually("the parameter", lambda: FIT in gates(steered, pod(GUARANTEED)))


@pytest.mark.parametrize("namespace", group.UNGATED_NAMESPACES)
def test_namespaces_that_topomend_needs_are_not_gated_even_if_labelled(steered: API, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    assert steered.patch(path, {"metadata": {"labels": {"topomend.io/steer": "enabled"}}}).allowed
    try:
        secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
        secure["seccompProfile"] = {"type": "RuntimeDefault"}
        content = pod({**GUARANTEED, "securityContext": secure})
        eventually("the policy", lambda: FIT in gates(steered, pod(GUARANTEED)))
        assert gates(steered, content, namespace) == []
    finally:
        assert steered.patch(path, {"metadata": {"labels": {"topomend.io/steer": None}}}).allowed


def test_in_a_namespace_that_opted_out_only_a_pod_that_opted_in_is_gated(steered: API) -> None:
    path = f"/api/v1/namespaces/{STEERED}"
    opted_in = pod(GUARANTEED, metadata={"annotations": {"topomend.io/relaunch": "true"}})
    assert steered.patch(path, {"metadata": {"annotations": {"topomend.io/relaunch": "false"}}}).allowed
    try:
        eventually("the annotation to count", lambda: gates(steered, pod(GUARANTEED)) == [])
        assert gates(steered, opted_in) == [FIT]
    finally:
        assert steered.patch(path, {"metadata": {"annotations": {"topomend.io/relaunch": None}}}).allowed
        eventually("the annotation's end", lambda: gates(steered, pod(GUARANTEED)) == [FIT])


def test_other_gates_stay_and_ours_is_set_once(steered: API) -> None:
    foreign, ours = {"name": "x.io/y"}, {"name": "topomend.io/relaunch"}
    assert gates(steered, pod(GUARANTEED, schedulingGates=[foreign])) == [foreign, FIT]
    assert gates(steered, pod(GUARANTEED, schedulingGates=[FIT])) == [FIT]
    assert gates(steered, pod(GUARANTEED, schedulingGates=[ours])) == [ours]


def test_a_namespace_without_the_label_is_not_touched(steered: API) -> None:
    assert gates(steered, pod(GUARANTEED), NAMESPACE) == []
