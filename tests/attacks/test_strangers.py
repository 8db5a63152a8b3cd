"""What strangers write on pods under topomend.io/ means nothing to topomend, on a real API server with real tokens."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import yaml
from deploy.manifests import ROOT, objects
from tests.attacks.conftest import PLAIN
from tests.clusters import every_policy
from tests.deploy.api import API, Answer
from tests.waiting import eventually

from topomend.relaunch import manifest
from topomend.wire import group
from topomend.wire.pods.scheduling import CRITICAL_CLASSES

pytestmark = pytest.mark.cluster  # needs a real API server: admission policies run nowhere else

ALIGNED = {"limits": {"cpu": "2", "memory": "1Gi"}}
ELSEWHERE = {"name": "other.io/gate"}
"""The gate of another, with which no pod of these tests runs."""

MARKS: dict[str, dict[str, Any]] = {
    key: {"metadata": {"annotations": {key: "x"}}}
    for key in (
        group.RECORD_ANNOTATION,
        group.REPLACES_ANNOTATION,
        group.ATTEMPT_ANNOTATION,
        group.RELEASED_ANNOTATION,
        f"{group.GROUP}/yet-to-come",
    )
} | {
    "finalizer": {"metadata": {"finalizers": [group.RELAUNCH_FINALIZER]}},
    "gate": {"spec": {"schedulingGates": [{"name": group.RELAUNCH_GATE}]}},
}
FIT = {"spec": {"schedulingGates": [{"name": group.FIT_GATE}]}}

OURS = "only topomend's operator writes"
NOT_STEERED = "is for pods of a namespace labelled topomend.io/steer=enabled"

_names = (f"stranger-{number}" for number in count())


def pod(fields: dict[str, Any] | None = None, *, resources: dict[str, Any] | None = None) -> dict[str, Any]:
    """A pod that never runs, with ``fields`` of metadata and spec beside its own."""
    fields = fields or {}
    container = {"name": "c", "image": "none", "resources": ALIGNED if resources is None else resources}
    spec = fields.get("spec", {})
    gates = [ELSEWHERE, *spec.get("schedulingGates", [])]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": next(_names), **fields.get("metadata", {})},
        "spec": {"containers": [container], **spec, "schedulingGates": gates},
    }


BRAKE = f"/apis/{group.API_VERSION}/namespaces/topomend-system/brakes/{group.BRAKE_NAME}"


@pytest.fixture(scope="module")
def brake(admin: API) -> Iterator[str]:
    """The path of the brake's list, which is there whenever an operator is."""
    content = {"apiVersion": group.API_VERSION, "kind": group.BRAKE, "metadata": {"name": group.BRAKE_NAME}}
    assert admin.apply(BRAKE, content).allowed
    yield BRAKE
    admin.delete(BRAKE)


@pytest.fixture(scope="module", params=["edit", "admin"])
def stranger(
    request: pytest.FixtureRequest,
    plain: str,
    brake: str,  # noqa: ARG001  the policy on the gate reads it
    member: Callable[[str], API],
) -> API:
    """A tenant who may edit the namespace, and its administrator."""
    one = member(request.param)
    probe = pod(MARKS[group.RECORD_ANNOTATION])
    eventually("the policy on marks", lambda: one.apply(_path(plain, probe), probe, dry_run=True).code == 403)
    gated = pod(FIT)
    eventually("the policy on the gate", lambda: one.apply(_path(plain, gated), gated, dry_run=True).code == 403)
    return one


def _path(namespace: str, content: dict[str, Any]) -> str:
    return f"{namespace}/pods/{content['metadata']['name']}"


def _is_denied(answer: Answer, words: str = OURS) -> bool:
    return (answer.code, words in answer.message) == (403, True)


@pytest.mark.parametrize("mark", MARKS)
def test_a_tenant_creates_no_pod_with_a_mark_of_the_operator(stranger: API, plain: str, mark: str) -> None:
    answer = stranger.create(f"{plain}/pods", pod(MARKS[mark]))
    assert _is_denied(answer), answer.content


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize("mark", [mark for mark in MARKS if mark != "gate"])
def test_a_tenant_adds_no_mark_to_a_pod(admin: API, stranger: API, plain: str, mark: str, subresource: str) -> None:
    content = pod()
    assert stranger.create(f"{plain}/pods", content).allowed
    # Who may write a pod's status is no tenant; a broken kubelet or a foreign controller is.
    writer = stranger if not subresource else _controller(admin, "pod-garbage-collector")
    answer = writer.patch(_path(plain, content) + subresource, MARKS[mark])
    assert _is_denied(answer), answer.content


def _controller(admin: API, name: str) -> API:
    """An account of the control plane."""
    return admin.impersonating(f"system:serviceaccount:kube-system:{name}")


@pytest.mark.parametrize(
    "key", [group.CREATOR_ANNOTATION, group.RECORD_ANNOTATION, group.REPLACES_ANNOTATION, group.ATTEMPT_ANNOTATION]
)
@pytest.mark.parametrize("value", ["forged", None], ids=["changed", "removed"])
def test_a_tenant_changes_and_removes_no_annotation_of_the_operator(
    admin: API, stranger: API, plain: str, key: str, value: str | None
) -> None:
    content = pod({"metadata": {"annotations": {key: "true"}}}, resources={})
    assert admin.create(f"{plain}/pods", content).allowed
    answer = stranger.patch(_path(plain, content), {"metadata": {"annotations": {key: value}}})
    assert _is_denied(answer), answer.content


def test_a_tenant_takes_the_fence_off_no_replacement_but_may_let_a_waiting_pod_go(
    admin: API, stranger: API, plain: str
) -> None:
    fenced, waiting = pod(MARKS["gate"]), pod(FIT)
    for content in (fenced, waiting):
        assert admin.create(f"{plain}/pods", content).allowed
    ungate = {"spec": {"schedulingGates": [ELSEWHERE]}}
    assert _is_denied(stranger.patch(_path(plain, fenced), ungate))
    assert stranger.patch(_path(plain, waiting), ungate).allowed


def test_a_tenant_writes_the_annotations_that_are_meant_for_users(stranger: API, plain: str) -> None:
    annotations = dict.fromkeys(group.USERS_ANNOTATIONS, "false")
    content = pod({"metadata": {"annotations": annotations}})
    assert stranger.create(f"{plain}/pods", content).allowed
    for value in ("true", None):
        patch = {"metadata": {"annotations": dict.fromkeys(annotations, value)}}
        assert stranger.patch(_path(plain, content), patch).allowed


@pytest.mark.parametrize("subresource", ["", "/status"])
def test_what_a_pods_creator_asks_for_is_written_at_its_creation_and_by_nobody_later(
    admin: API, stranger: API, plain: str, subresource: str
) -> None:
    writer = stranger if not subresource else _controller(admin, "pod-garbage-collector")
    asking = dict.fromkeys(group.CREATORS_ANNOTATIONS, "single-numa-node")
    asks, asks_nothing = pod({"metadata": {"annotations": asking}}), pod()
    for content in (asks, asks_nothing):
        assert stranger.create(f"{plain}/pods", content).allowed
    later = {"metadata": {"annotations": asking}}
    assert _is_denied(writer.patch(_path(plain, asks_nothing) + subresource, later))
    for value in ("", None):
        removal = {"metadata": {"annotations": dict.fromkeys(asking, value)}}
        assert _is_denied(writer.patch(_path(plain, asks) + subresource, removal))
    other = {"metadata": {"annotations": {"mine": "1"}}}
    assert writer.patch(_path(plain, asks) + subresource, other).allowed


def test_a_tenant_may_give_a_finalizer_up_so_that_no_pod_is_stuck_without_an_operator(
    admin: API, stranger: API, plain: str
) -> None:
    content = pod(MARKS["finalizer"])
    assert admin.create(f"{plain}/pods", content).allowed
    assert stranger.patch(_path(plain, content), {"metadata": {"finalizers": None}}).allowed


def test_what_is_written_on_a_stamped_pod_after_its_creation_is_noted_and_stays_noted(
    admin: API, stranger: API, plain: str
) -> None:
    """An annotation that acts at a pod's creation must not act for somebody who may only change pods."""
    content = pod({"metadata": {"annotations": {"mine": "1"}, "labels": {"app": "t"}}})
    path = _path(plain, content)
    created = stranger.create(f"{plain}/pods", content)
    assert group.CREATOR_ANNOTATION in created.content["metadata"]["annotations"]

    def note(by: API, annotations: dict[str, str], labels: dict[str, str], subresource: str = "") -> set[str]:
        patch = {"metadata": {"annotations": annotations, "labels": labels}}
        answer = by.patch(path + subresource, patch)
        assert answer.allowed, answer.message
        return set(answer.content["metadata"]["annotations"].get(group.CHANGED_ANNOTATION, "").split())

    assert note(stranger, {"mine": "1"}, {"app": "t"}) == set()
    first = eventually("the policy", lambda: note(stranger, {"networks": next(_names)}, {"app": "t"}))
    assert first == {"networks"}
    second = note(_controller(admin, "pod-garbage-collector"), {"k8s.ovn.org/pod-networks": "{}"}, {}, "/status")
    assert second == {"networks", "k8s.ovn.org/pod-networks"}
    assert note(stranger, {"mine": "2", group.RELAUNCH_ANNOTATION: "false"}, {"app": "u"}) == second | {
        "mine",
        f"{group.LABEL_PREFIX}app",
    }
    for forged in ("networks", "", None):
        answer = stranger.patch(path, {"metadata": {"annotations": {group.CHANGED_ANNOTATION: forged}}})
        assert _is_denied(answer), answer.content


def test_nobody_hides_a_change_behind_more_keys_than_the_api_server_compares(stranger: API, plain: str) -> None:
    """The policy that notes changes lets a pod through where it costs too much, so that it blocks no pod."""
    content = pod()
    path = _path(plain, content)
    assert stranger.create(f"{plain}/pods", content).allowed
    before: dict[str, str] = {}
    for letter in "abc":  # the longest names, as many as may change at once and before
        keys = {f"{letter * 253}/{'k' * 58}{number:05}": "1" for number in range(124)}
        answer = stranger.patch(path, {"metadata": {"annotations": dict.fromkeys(before) | keys}})
        assert answer.allowed, answer.message
        assert keys.keys() <= set(answer.content["metadata"]["annotations"][group.CHANGED_ANNOTATION].split())
        before = keys
    hidden = {f"k{number}": "1" for number in range(1_000)} | {"k8s.v1.cni.cncf.io/networks": "other"}
    assert _is_denied(stranger.patch(path, {"metadata": {"annotations": hidden}}), "of at most 500 in all")
    assert _is_denied(stranger.patch(path, {"metadata": {"labels": hidden}}), "of at most 500 in all")


def test_a_pod_of_many_annotations_is_changed_in_all_else(admin: API, stranger: API, plain: str) -> None:
    content = pod({"metadata": {"annotations": {f"k{number}": "1" for number in range(1_000)}}})
    assert stranger.create(f"{plain}/pods", content).allowed
    status = {"status": {"conditions": [{"type": "Seen", "status": "True"}]}}
    assert _controller(admin, "pod-garbage-collector").patch(f"{_path(plain, content)}/status", status).allowed
    assert stranger.patch(_path(plain, content), {"spec": {"schedulingGates": None}}).allowed


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}


def test_a_tenant_gates_pods_only_where_the_namespace_is_steered(admin: API, stranger: API, plain: str) -> None:
    assert _is_denied(stranger.create(f"{plain}/pods", pod(FIT)), NOT_STEERED)
    forged = pod({**FIT, "metadata": {"ownerReferences": [OWNER | {"uid": "1"}]}})
    assert _is_denied(stranger.create(f"{plain}/pods", forged), NOT_STEERED)
    assert admin.patch(plain, {"metadata": {"labels": {group.STEER_LABEL: "enabled"}}}).allowed
    try:
        gated = pod(FIT)
        eventually("the label", lambda: stranger.apply(_path(plain, gated), gated, dry_run=True).allowed)
    finally:
        admin.patch(plain, {"metadata": {"labels": {group.STEER_LABEL: None}}})
        eventually("the label's end", lambda: _is_denied(stranger.apply(_path(plain, gated), gated, dry_run=True), ""))


def braked(uid: str, **spec: Any) -> dict[str, Any]:
    """A pod of the controller of that uid, which even topomend's own namespaces accept."""
    content = pod({"metadata": {"ownerReferences": [OWNER | {"uid": uid}]}, "spec": spec})
    content["spec"] |= {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}}
    (container,) = content["spec"]["containers"]
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return content


def is_gated(by: API, namespace: str, content: dict[str, Any]) -> bool:
    answer = by.apply(_path(namespace, content), content, dry_run=True)
    assert answer.allowed, answer.message
    return {"name": group.FIT_GATE} in answer.content["spec"]["schedulingGates"]


@pytest.fixture
def braked_uid(admin: API, operator: API, plain: str, brake: str) -> Iterator[str]:
    """A controller on the list of the brake, which is in force."""
    uid = "0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b12"
    assert operator.patch(brake, {"owners": {uid: f"{PLAIN}/ReplicaSet/r"}}).allowed
    eventually("the brake", lambda: is_gated(admin, plain, braked(uid)))
    yield uid
    assert admin.patch(brake, {"owners": None}).allowed
    eventually("the brake's end", lambda: not is_gated(admin, plain, braked(uid)))  # else it ends in the next test


def test_a_pod_of_a_braked_controller_is_gated_and_created(stranger: API, plain: str, braked_uid: str) -> None:
    assert is_gated(stranger, plain, braked(braked_uid))


@pytest.mark.parametrize("namespace", group.UNGATED_NAMESPACES)
def test_no_pod_of_what_topomend_needs_is_gated_even_if_its_controller_is_on_the_list(
    admin: API, braked_uid: str, namespace: str
) -> None:
    """The operator's pods would wait for an operator."""
    path = f"/api/v1/namespaces/{namespace}"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    assert admin.apply(f"{path}/serviceaccounts/default", account).allowed
    assert not is_gated(admin, path, braked(braked_uid))


@pytest.mark.parametrize("name", CRITICAL_CLASSES)
def test_no_critical_pod_is_gated_even_if_its_controller_is_on_the_list(
    stranger: API, plain: str, braked_uid: str, name: str
) -> None:
    assert not is_gated(stranger, plain, braked(braked_uid, priorityClassName=name))


@pytest.mark.parametrize("mark", [*MARKS, "fit"])
def test_a_template_with_a_mark_makes_no_pod(admin: API, stranger: API, mark: str) -> None:
    """The pod's author is then the controller's account, which may create pods anywhere."""
    fields = FIT if mark == "fit" else MARKS[mark]
    template = pod(fields)
    template = {
        "metadata": {**fields.get("metadata", {}), "labels": {"set": "marked"}},
        "spec": template["spec"],
    }
    name = next(_names)
    spec = {"replicas": 1, "selector": {"matchLabels": {"set": "marked"}}, "template": template}
    content = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
    sets = f"/apis/apps/v1/namespaces/{PLAIN}/replicasets"
    created = stranger.create(sets, content)
    assert created.allowed, created.message

    def failure() -> str:
        conditions = admin.get(f"{sets}/{name}").content.get("status", {}).get("conditions", [])
        return next(
            (str(condition["message"]) for condition in conditions if condition["type"] == "ReplicaFailure"), ""
        )

    message = eventually("the controller's failure", failure)
    stranger.delete(f"{sets}/{name}")
    assert (OURS if mark not in ("fit", "finalizer") else "") in message
    assert mark != "fit" or NOT_STEERED in message


def test_an_agent_writes_nothing_on_any_pod(admin: API, plain: str, agent_on: Callable[[str], API]) -> None:
    agent = agent_on("attacks-node")
    content = pod()
    assert admin.create(f"{plain}/pods", content).allowed
    for fields in MARKS.values():
        assert agent.create(f"{plain}/pods", pod(fields)).code == 403
        assert agent.patch(_path(plain, content), fields).code == 403


def test_the_users_annotations_are_the_same_in_the_policy_and_in_the_code() -> None:
    policy = next(item for item in objects() if item["metadata"]["name"] == "topomend-marks")
    lists = {variable["name"]: variable["expression"] for variable in policy["spec"]["variables"]}
    assert set(yaml.safe_load(lists["usersOwn"])) == set(group.USERS_ANNOTATIONS)
    assert set(yaml.safe_load(lists["creatorsOwn"])) == set(group.CREATORS_ANNOTATIONS)


def _name_of(item: dict[str, Any]) -> str:
    return f"{item['kind']} {item['metadata']['name']}"


EVERYTHING = (*objects(), *every_policy())
"""What the manifests install, and what the operator installs."""


@pytest.mark.parametrize(
    "item", [item for item in EVERYTHING if item["kind"].endswith("AdmissionPolicy")], ids=_name_of
)
def test_no_policy_asks_the_authorizer_about_writes_that_are_not_about_topomend(item: dict[str, Any]) -> None:
    """The API server evaluates every condition of every policy for each write, whatever the others say."""
    for condition in item["spec"].get("matchConditions", ()):
        assert "authorizer" not in condition["expression"]


@pytest.mark.parametrize("item", [item for item in EVERYTHING if "paramKind" in item.get("spec", {})], ids=_name_of)
def test_a_policy_with_a_parameter_denies_nothing_without_it(item: dict[str, Any]) -> None:
    """While the kind of its parameter is not served, one that fails closed denies every write that it could match."""
    is_always_served = item["spec"]["paramKind"]["apiVersion"] == "rbac.authorization.k8s.io/v1"
    assert is_always_served or item["spec"]["failurePolicy"] == "Ignore"
    bindings = [binding for binding in EVERYTHING if binding["kind"] == f"{item['kind']}Binding"]
    (binding,) = (binding for binding in bindings if binding["spec"]["policyName"] == item["metadata"]["name"])
    assert binding["spec"]["paramRef"]["parameterNotFoundAction"] == "Allow"


def test_the_threat_model_names_every_annotation_that_never_goes_along() -> None:
    text = (ROOT / "docs" / "security" / "remains.md").read_text()
    for key in manifest.OF_ITS_LIFE:
        prefix, _, name = key.partition("/")
        assert f"`{prefix}/" in text
        assert f"{name}`" in text
