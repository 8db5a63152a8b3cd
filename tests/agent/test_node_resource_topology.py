"""The agent's second object on a real API server, beside a real kubelet. Slow: a control plane and kubelets start."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.agent.test_agent_on_cluster import Kubernetes, container, publish_once, running, until
from tests.clusters import served
from tests.publish.schema import DEFINITION

from topomend.kube.client import Client, Resource, connect
from topomend.publish.node_resource_topology import CONDITION
from topomend.sandbox import Sandbox
from topomend.wire.published.node_resource_topology import API_VERSION, PLACEMENT

pytestmark = pytest.mark.cluster

ZONES = Resource(API_VERSION, "noderesourcetopologies", namespaced=False)
NODE = "split"
FLAG = "--node-resource-topology"
GIB = 1 << 30


@pytest.fixture(scope="module")
def kubernetes(cluster: Sandbox) -> Kubernetes:
    return Kubernetes(cluster)


@pytest.fixture
def client(cluster: Sandbox) -> Iterator[Client]:
    """With the kind installed, and gone afterwards."""
    client = connect(str(cluster.kubeconfig))
    with served(client, [DEFINITION], ZONES):
        yield client
    client.close()


def available(client: Client) -> dict[str, dict[str, str]]:
    """What is available by zone and resource."""
    zones = client.get(ZONES, NODE)["zones"]
    return {zone["name"]: {resource["name"]: resource["available"] for resource in zone["resources"]} for zone in zones}


def attributes(client: Client) -> dict[str, str]:
    return {attribute["name"]: attribute["value"] for attribute in client.get(ZONES, NODE)["attributes"]}


def test_zones_follow_what_the_kubelet_gives_and_takes_back(
    cluster: Sandbox, kubernetes: Kubernetes, client: Client
) -> None:
    with running(cluster, kubernetes, NODE, FLAG):
        until(lambda: not kubernetes.state(NODE).pods)
        idle = until(lambda: available(client))
        assert {name: (zone["cpu"], zone["vendor.com/gpu"]) for name, zone in idle.items()} == {
            "node-0": ("3", "1"),
            "node-1": ("4", "1"),
        }
        assert idle["node-1"]["memory"] == str(8 * GIB)
        assert kubernetes.condition(NODE, CONDITION).status == "True"
        before = attributes(client)
        assert (before["topologyManagerPolicy"], before["topologyManagerScope"]) == ("single-numa-node", "container")
        owner = client.get(ZONES, NODE)["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"]) == ("Node", NODE)
        limits = {"cpu": "4", "memory": "1Gi", "vendor.com/gpu": "1"}
        with kubernetes.pod(NODE, "train", [container("main", **limits)], []):
            held = {"cpu": "0", "memory": str(7 * GIB), "vendor.com/gpu": "0"}
            until(lambda: available(client)["node-1"] == held)
            assert available(client)["node-0"] == idle["node-0"]
            assert attributes(client)[PLACEMENT] == "npv0v001::ve=leb89::cc=1::nn=2::bn=1"
            fingerprint = "nodeTopologyPodsFingerprint"
            assert attributes(client)[fingerprint] != before[fingerprint]
        until(lambda: available(client) == idle and attributes(client) == before)
        version = client.get(ZONES, NODE)["metadata"]["resourceVersion"]
    publish_once(cluster, NODE, FLAG)
    assert client.get(ZONES, NODE)["metadata"]["resourceVersion"] == version


def test_an_object_of_another_writer_is_left_alone_and_the_writer_named(
    cluster: Sandbox, kubernetes: Kubernetes, client: Client
) -> None:
    theirs: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "NodeResourceTopology", "metadata": {"name": NODE}}
    client.create(ZONES, {**theirs, "zones": [{"name": "node-0", "type": "Node"}]})
    before = client.get(ZONES, NODE)
    assert publish_once(cluster, NODE, FLAG) == 0
    assert client.get(ZONES, NODE) == before
    condition = kubernetes.condition(NODE, CONDITION)
    assert (condition.status, condition.reason) == ("False", "OtherWriter")
    assert before["metadata"]["managedFields"][0]["manager"] in condition.message
    assert kubernetes.ready(NODE) == "True"


def test_without_the_kind_the_condition_says_so_and_the_node_is_ready(cluster: Sandbox, kubernetes: Kubernetes) -> None:
    assert publish_once(cluster, NODE, FLAG) == 0
    condition = kubernetes.condition(NODE, CONDITION)
    assert (condition.status, condition.reason) == ("False", "KindNotInstalled")
    assert kubernetes.ready(NODE) == "True"


def test_without_the_flag_there_is_neither_object_nor_condition(
    cluster: Sandbox, kubernetes: Kubernetes, client: Client
) -> None:
    publish_once(cluster, NODE, FLAG)
    before = client.get(ZONES, NODE)
    publish_once(cluster, NODE)
    assert client.get(ZONES, NODE) == before
    assert not [
        condition for condition in kubernetes.topology(NODE)["status"]["conditions"] if condition["type"] == CONDITION
    ]
