"""The overlay that has agents publish NodeResourceTopology objects: its rights, and whose objects they reach."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from deploy.manifests import DEPLOY
from tests.deploy.api import API
from tests.deploy.base.test_install import kubectl
from tests.deploy.conftest import token_of
from tests.waiting import eventually

from topomend.runtime.manifests import documents
from topomend.sandbox import Sandbox

pytestmark = pytest.mark.cluster  # a real API server decides

OVERLAY = DEPLOY / "overlays" / "node-resource-topology"
KIND = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


@pytest.fixture(scope="module")
def agents(agent_on: Callable[[str], API]) -> tuple[API, API]:
    """Those of the nodes nrt-1 and nrt-2."""
    return agent_on("nrt-1"), agent_on("nrt-2")


@pytest.fixture(scope="module")
def installed(admin: API, agents: tuple[API, API], zones_kind: None) -> API:
    """The kind, the overlay's role and the policy, all noticed by the API server."""
    del zones_kind
    agent, _ = agents
    eventually("the role", lambda: agent.apply(f"{KIND}/nrt-1", body("nrt-1"), dry_run=True).allowed)
    eventually("the policy", lambda: agent.apply(f"{KIND}/nrt-2", body("nrt-2"), dry_run=True).code == 403)
    return admin


def body(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name, **metadata},
        "zones": [],
    }


def owned_by(name: str) -> list[dict[str, str]]:
    return [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": "0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11"}]


def test_an_agent_writes_its_own_nodes_object_and_no_other(installed: API, agents: tuple[API, API]) -> None:
    first, second = agents
    assert first.apply(f"{KIND}/nrt-1", body("nrt-1")).allowed
    assert second.apply(f"{KIND}/nrt-2", body("nrt-2")).allowed
    assert first.get(f"{KIND}/nrt-1").allowed
    # Not carried out: there is no such node, and the garbage collector would take the object away at once.
    assert first.apply(f"{KIND}/nrt-1", body("nrt-1", ownerReferences=owned_by("nrt-1")), dry_run=True).allowed
    for name, answer in (
        ("nrt-2", first.apply(f"{KIND}/nrt-2", {**body("nrt-2"), "attributes": [{"name": "a", "value": "b"}]})),
        ("nrt-2", first.patch(f"{KIND}/nrt-2", {"attributes": [{"name": "a", "value": "b"}]})),
        ("nrt-3", first.apply(f"{KIND}/nrt-3", body("nrt-3"))),
        ("nrt-3", first.create(KIND, body("nrt-3"))),
    ):
        assert answer.code == 403
        assert f"the agent of node nrt-1 may not write the object of {name}" in answer.message
    answer = first.apply(f"{KIND}/nrt-1", body("nrt-1", ownerReferences=owned_by("nrt-2")))
    assert (answer.code, "its own Node as its only owner" in answer.message) == (403, True)
    assert first.delete(f"{KIND}/nrt-1").code == 403
    assert first.delete(f"{KIND}/nrt-2").code == 403
    assert first.get(KIND).code == 403
    assert "attributes" not in installed.get(f"{KIND}/nrt-2").content
    assert installed.get(f"{KIND}/nrt-3").code == 404


def test_a_token_that_names_no_node_writes_nothing(installed: API) -> None:
    unbound = installed.as_token(token_of(installed, "topomend-agent", "topomend-agent"))
    for name in ("nrt-1", "nrt-4"):
        answer = unbound.apply(f"{KIND}/{name}", body(name))
        assert (answer.code, "this token names no node" in answer.message) == (403, True)


def test_the_overlay_is_accepted_and_adds_one_flag(installed: API, cluster: Sandbox) -> None:
    del installed
    made = kubectl("kustomize", str(OVERLAY), kubeconfig=cluster.kubeconfig)
    agent = next(content for content in documents(made) if content["kind"] == "DaemonSet")
    base = yaml.safe_load((DEPLOY / "base" / "agent.yaml").read_text())
    args = [content["spec"]["template"]["spec"]["containers"][0]["args"] for content in (base, agent)]
    assert args[1] == [*args[0], "--node-resource-topology"]
    applied = kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(OVERLAY),
        kubeconfig=cluster.kubeconfig,
    )  # fmt: skip
    assert "clusterrole.rbac.authorization.k8s.io/topomend-agent-node-resource-topology serverside-applied" in applied
