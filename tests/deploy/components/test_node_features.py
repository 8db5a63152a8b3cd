"""The component that has agents write NodeFeature objects: its rights, and which Nodes they label through NFD."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deploy.manifests import DEPLOY
from tests.deploy.api import API, Answer, path_of
from tests.waiting import eventually
from verify.nfd.programs import kinds

from topomend.model.nodes.node_features import NodeFeatures
from topomend.runtime.manifests import documents
from topomend.wire.published.node_feature import NODE_NAME, node_feature

pytestmark = pytest.mark.cluster  # a real API server decides

COMPONENT = DEPLOY / "components" / "node-features"
NAMESPACE = "topomend-agent"
KIND = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"


def body(name: str, **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": "0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11"}
    made = node_feature(name, NAMESPACE, owner, NodeFeatures({"numa-nodes": "2"}, {}, {"topomend.pci": ()}))
    return {**made, "spec": {**made["spec"], **spec}}


def named(name: str, node: str) -> dict[str, Any]:
    made = body(name)
    return {**made, "metadata": {**made["metadata"], "labels": {NODE_NAME: node}}}


@pytest.fixture(scope="module")
def agent(admin: API, agent_on: Callable[[str], API]) -> Iterator[API]:
    """That of the node nfd-1, with NFD's kinds and the component's role, noticed by the API server."""
    items = [*kinds(), *documents((COMPONENT / "role.yaml").read_text())]
    for item in items:
        assert admin.apply(path_of(item), item).allowed
    agent = agent_on("nfd-1")
    eventually("the role", lambda: agent.apply(f"{KIND}/nfd-1", body("nfd-1"), dry_run=True).allowed)
    eventually("the policy", lambda: agent.apply(f"{KIND}/nfd-2", body("nfd-2"), dry_run=True).code == 403)
    yield agent
    for item in reversed(items):
        admin.delete(path_of(item))
    eventually("the kinds' end", lambda: not any(admin.get(path_of(kind)).allowed for kind in kinds()), 60)


def tried(agent: API, content: dict[str, Any]) -> Answer:
    """Not carried out: there is no such node, and the garbage collector would take the object away at once."""
    return agent.apply(f"{KIND}/{content['metadata']['name']}", content, dry_run=True)


def test_an_agent_writes_the_features_of_its_own_node(agent: API) -> None:
    assert tried(agent, body("nfd-1")).allowed


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(body("nfd-2"), "may not write the object of nfd-2", id="another node's object"),
        pytest.param(named("nfd-1", "nfd-2"), "must name the agent's own node", id="a label that names another node"),
        pytest.param(named("nfd-1", ""), "must name the agent's own node", id="a label that names none"),
        *(
            pytest.param(body("nfd-1", labels={key: "x"}), "an agent labels in topomend.io alone", id=key)
            for key in (
                "node-role.kubernetes.io/control-plane",
                "plain",
                "topomend.io.example.com/x",
                "feature.node.kubernetes.io/cpu-cpuid.AVX512F",
            )
        ),
        *(
            pytest.param(
                body("nfd-1", features={sort: {"cpu.model": {"elements": empty}}}),
                "its features are named topomend.*",
                id=f"{sort} of NFD itself",
            )
            for sort, empty in (("attributes", {}), ("flags", {}), ("instances", []))
        ),
    ],
)
def test_a_compromised_agent_labels_nothing_else(agent: API, content: dict[str, Any], reason: str) -> None:
    answer = tried(agent, content)
    assert (answer.code, reason in answer.message) == (403, True), answer.message


def test_an_agent_has_no_other_right_on_the_kind(agent: API, admin: API) -> None:
    elsewhere = body("nfd-1")
    elsewhere["metadata"]["namespace"] = "default"
    path = KIND.replace(NAMESPACE, "default")
    assert agent.apply(f"{path}/nfd-1", elsewhere, dry_run=True).code == 403
    assert agent.get(KIND).code == 403
    assert agent.delete(f"{KIND}/nfd-1").code == 403
    assert agent.patch("/api/v1/nodes/nfd-1", {"metadata": {"labels": {"a": "b"}}}).code == 403
    assert admin.get(KIND).content["items"] == []
