"""The operator's right on nodes, with the component that gives it: one change, and no other, on a real API server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deploy.manifests import DEPLOY, ROOT
from tests.deploy.api import API, path_of
from tests.deploy.base.test_renamed import HOME, OPERATOR, PREFIX, renamed
from tests.deploy.components.test_components import built
from tests.waiting import eventually

from topomend.runtime.manifests import documents
from topomend.wire.group import STARTUP_TAINTS

pytestmark = pytest.mark.cluster

NODE = "/api/v1/nodes/startup-taint"
KEY, AUTOSCALERS = STARTUP_TAINTS
OURS = {"key": KEY, "effect": "NoSchedule"}
OTHER = {"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def component(admin: API) -> Iterator[None]:
    """The role and the policy, in force."""
    folder = DEPLOY / "components" / "startup-taint"
    items = [item for name in ("policy.yaml", "role.yaml") for item in documents((folder / name).read_text())]
    for item in items:
        answer = admin.apply(path_of(item), item)
        assert answer.allowed, answer.message
    yield
    for item in items:
        admin.delete(path_of(item))


@pytest.fixture
def node(admin: API, operator: API, component: None) -> Iterator[None]:  # noqa: ARG001
    """A node with our taint and another."""
    metadata = {"name": "startup-taint", "labels": {"pool": "a"}, "annotations": {"note": "1"}}
    content = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"unschedulable": True}}
    assert admin.create("/api/v1/nodes", content).allowed

    def tainted() -> bool:
        return admin.patch(NODE, {"spec": {"taints": [OURS, OTHER]}}).allowed

    eventually("its taints", tainted)
    noted = {"metadata": {"annotations": {"note": "2"}}}
    eventually("the role and the policy", lambda: TAINTS in operator.patch(NODE, noted).message)
    yield
    admin.delete(NODE)


def taints(admin: API) -> list[dict[str, Any]]:
    """The node's taints but ours: the node lifecycle controller adds some."""
    return [taint for taint in admin.get(NODE).content["spec"].get("taints", []) if taint["key"] not in STARTUP_TAINTS]


EVICTING = {"key": "example.com/evict", "effect": "NoExecute"}
TAINTS, SPEC, METADATA = "only remove those", "may change only the taints", "may not change a node's metadata"
DENIED: dict[str, tuple[str, dict[str, Any]]] = {
    "a label": (METADATA, {"metadata": {"labels": {"pool": "b"}}}),
    "an annotation": (METADATA, {"metadata": {"annotations": {"note": "2"}}}),
    "a finalizer": (METADATA, {"metadata": {"finalizers": ["example.com/kept"]}}),
    "uncordoned": (SPEC, {"spec": {"unschedulable": None}}),
    "a provider id": (SPEC, {"spec": {"providerID": "cloud://1"}}),
    "a range of addresses": (SPEC, {"spec": {"podCIDR": "10.9.9.0/24", "podCIDRs": ["10.9.9.0/24"]}}),
}


@pytest.mark.parametrize("change", DENIED)
@pytest.mark.usefixtures("node")
def test_with_our_taint_the_operators_account_changes_nothing_else(admin: API, operator: API, change: str) -> None:
    words, patch = DENIED[change]
    before = admin.get(NODE).content

    def is_denied() -> bool:
        answer = operator.patch(NODE, {**patch, "spec": {"taints": taints(admin), **patch.get("spec", {})}})
        assert answer.code == 403
        return words in answer.message

    eventually("no other taint to come meanwhile", is_denied)
    assert admin.get(NODE).content["metadata"].get("labels") == before["metadata"].get("labels")


@pytest.mark.parametrize(
    "change",
    [
        lambda others: [taint for taint in others if taint != OTHER],
        lambda _: [],
        lambda others: [*others, EVICTING],
        lambda others: [{**taint, "effect": "NoExecute"} for taint in others],
        lambda others: [*others, OURS],
        lambda others: [*others, {**OURS, "effect": "NoExecute"}],
    ],
    ids=["removed", "all removed", "added", "changed", "ours kept", "ours for running pods"],
)
@pytest.mark.usefixtures("node")
def test_it_changes_no_taint_of_others_and_writes_none(
    admin: API, operator: API, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    answer = operator.patch(NODE, {"spec": {"taints": change(taints(admin))}})
    assert answer.code == 403
    assert TAINTS in answer.message


@pytest.mark.parametrize("subresource", ["/status", "/proxy"])
@pytest.mark.usefixtures("node")
def test_it_writes_no_part_of_a_node(operator: API, subresource: str) -> None:
    assert operator.patch(NODE + subresource, {"status": {"phase": "x"}}).code in (403, 405)
    assert operator.delete(NODE).code == 403


@pytest.mark.parametrize("key", STARTUP_TAINTS)
@pytest.mark.usefixtures("node")
def test_it_takes_our_taint_off_and_leaves_the_others(admin: API, operator: API, key: str) -> None:
    assert admin.patch(NODE, {"spec": {"taints": [{**OURS, "key": key}, OTHER]}}).allowed

    def patch() -> dict[str, Any]:
        version = admin.get(NODE).content["metadata"]["resourceVersion"]
        return {"metadata": {"resourceVersion": version}, "spec": {"taints": taints(admin)}}

    old = patch()
    eventually("no other taint to come meanwhile", lambda: operator.patch(NODE, patch()).allowed)
    assert OTHER in taints(admin)
    assert key not in [taint["key"] for taint in admin.get(NODE).content["spec"]["taints"]]
    assert operator.patch(NODE, old).code == 409  # the node has changed since


@pytest.mark.usefixtures("node")
def test_nobody_else_is_denied_anything(admin: API) -> None:
    for _, patch in (DENIED["uncordoned"], DENIED["a label"]):
        assert admin.patch(NODE, patch).allowed


def test_the_component_gives_the_flag_and_lets_the_operator_start_on_new_nodes(tmp_path: Path) -> None:
    items = built(tmp_path, "startup-taint")
    deployment = next(item for item in items if item["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["containers"][0]["args"][-1] == "--startup-taint"
    assert [(toleration["key"], toleration["operator"]) for toleration in spec["tolerations"]] == [
        (key, "Exists") for key in STARTUP_TAINTS
    ]
    agents = next(item for item in items if item["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    assert agents["tolerations"] == [{"operator": "Exists"}]


def test_under_another_name_the_policy_reads_its_own_binding(tmp_path: Path) -> None:
    items = renamed(tmp_path, "startup-taint")
    (binding,) = (
        item
        for item in items
        if item["kind"] == "ValidatingAdmissionPolicyBinding" and "startup-taint" in item["metadata"]["name"]
    )
    name = f"{PREFIX}topomend-startup-taint"
    assert (binding["spec"]["policyName"], binding["spec"]["paramRef"]["name"]) == (name, name)
    (role,) = (item for item in items if item["kind"] == "ClusterRoleBinding" and item["metadata"]["name"] == name)
    assert role["subjects"] == [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": HOME}]


def test_the_documentation_and_the_policy_name_the_keys_that_the_operator_knows() -> None:
    text = (ROOT / "docs" / "run" / "new-nodes.md").read_text()
    policy = (DEPLOY / "components" / "startup-taint" / "policy.yaml").read_text()
    for key in STARTUP_TAINTS:
        assert key in text
        assert f"'{key}'" in policy
