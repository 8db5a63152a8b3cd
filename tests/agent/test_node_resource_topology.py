"""The agent's second object on a real API server, beside a real kubelet. Slow: a control plane and kubelets start."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.agent.test_agent_on_cluster import Kubernetes, container, publish_once, running, until
from tests.clusters import served
from tests.publish.schema import DEFINITION

from topomend.kube.client import Client, connect
from topomend.kube.resources import NAMESPACES, Resource
from topomend.publish.node_resource_topology import CONDITION
from topomend.sandbox import Sandbox
from topomend.wire.published.node_resource_topology import API_VERSION, PLACEMENT

pytestmark = pytest.mark.cluster

ZONES = Resource(API_VERSION, "noderesourcetopologies", namespaced=False)
NODE = "split"
FLAG = "--node-resource-topology"
GIB = 1 << 30

NFD = "node-feature-discovery-topology-updater"
"""The field manager of NFD's topology updater since its pull request 2564."""

NFD_OBJECT: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "NodeResourceTopology",
    "topologyPolicies": ["SingleNUMANodeContainerLevel"],
    "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
    "zones": [
        {
            "name": "node-0",
            "type": "Node",
            "costs": [{"name": "node-0", "value": 10}],
            "resources": [{"name": "cpu", "capacity": "4", "allocatable": "3", "available": "3"}],
        }
    ],
}


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


@pytest.fixture(scope="module")
def nfd_owner(cluster: Sandbox) -> Iterator[dict[str, str]]:
    """NFD's namespace as the owner of an object."""
    client = connect(str(cluster.kubeconfig))
    head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "node-feature-discovery"}}
    made = client.create(NAMESPACES, head)["metadata"]
    yield {"apiVersion": "v1", "kind": "Namespace", "name": made["name"], "uid": made["uid"]}
    client.delete(NAMESPACES, made["name"], uid=made["uid"])
    client.close()


@pytest.fixture
def nfd_writes(cluster: Sandbox, client: Client, nfd_owner: dict[str, str]) -> Callable[[], dict[str, Any]]:
    """Writes the node's object as NFD's topology updater does, and returns it as the API server has it then.

    It forces all of its fields, and its namespace owns the object (nfd-topology-updater.go:updateNodeResourceTopology).
    """

    def write() -> dict[str, Any]:
        content = {**NFD_OBJECT, "metadata": {"name": NODE, "ownerReferences": [nfd_owner]}}
        options = ("--server-side", "--force-conflicts", f"--field-manager={NFD}", "--filename=-")
        cluster.kubectl("apply", *options, stdin=json.dumps(content))
        return client.get(ZONES, NODE)

    return write


def owners(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The kinds and names of an object's owners."""
    return sorted((owner["kind"], owner["name"]) for owner in content["metadata"].get("ownerReferences", ()))


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


def test_an_object_that_nfd_takes_over_is_not_taken_back(
    cluster: Sandbox, kubernetes: Kubernetes, client: Client, nfd_writes: Callable[[], dict[str, Any]]
) -> None:
    """The two owners stand beside each other: a list of owners is merged, and neither writer names the other's."""
    assert publish_once(cluster, NODE, FLAG) == 0
    assert owners(client.get(ZONES, NODE)) == [("Node", NODE)]
    theirs = nfd_writes()
    assert theirs["zones"] == NFD_OBJECT["zones"]
    assert owners(theirs) == [("Namespace", "node-feature-discovery"), ("Node", NODE)]
    assert publish_once(cluster, NODE, FLAG) == 0
    assert client.get(ZONES, NODE) == theirs
    condition = kubernetes.condition(NODE, CONDITION)
    assert (condition.status, condition.reason) == ("False", "OtherWriter")
    assert condition.message.startswith(f"{NFD} writes the NodeResourceTopology {NODE}, so the agent does not;")


def test_a_running_agent_whose_object_nfd_takes_over_meets_the_conflict_and_gives_way(
    cluster: Sandbox, kubernetes: Kubernetes, client: Client, nfd_writes: Callable[[], dict[str, Any]]
) -> None:
    """It writes from what it last saw of its object, without force: the API server tells it of the other one."""
    with running(cluster, kubernetes, NODE, FLAG):
        until(lambda: attributes(client))
        theirs = nfd_writes()
        with kubernetes.pod(NODE, "train", [container("main", cpu="2", memory="1Gi")], []):
            until(lambda: kubernetes.condition(NODE, CONDITION).reason == "OtherWriter")
            assert NFD in kubernetes.condition(NODE, CONDITION).message
            assert client.get(ZONES, NODE) == theirs
        assert kubernetes.ready(NODE) == "True"


def test_once_the_object_of_another_writer_is_deleted_the_agent_publishes_its_own(
    cluster: Sandbox, kubernetes: Kubernetes, client: Client, nfd_writes: Callable[[], dict[str, Any]]
) -> None:
    """A writer that was stopped stays the manager of the fields that it wrote."""
    theirs = nfd_writes()
    assert publish_once(cluster, NODE, FLAG) == 0
    condition = kubernetes.condition(NODE, CONDITION)
    assert condition.reason == "OtherWriter"
    assert condition.message.endswith("stop one of the two; if that is the other one, delete its object too")
    client.delete(ZONES, NODE, uid=theirs["metadata"]["uid"])
    assert publish_once(cluster, NODE, FLAG) == 0
    assert kubernetes.condition(NODE, CONDITION).status == "True"
    assert owners(client.get(ZONES, NODE)) == [("Node", NODE)]


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
