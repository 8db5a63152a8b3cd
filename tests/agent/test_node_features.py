"""The agent's NodeFeature on a real API server with NFD's own kinds. Slow: a control plane and kubelets start."""

from collections.abc import Iterator

import pytest
from tests.agent.test_agent_on_cluster import Kubernetes, container, publish_once, running, until
from tests.clusters import served
from verify.nfd.programs import kinds

from topomend.kube.client import Client, connect
from topomend.kube.resources import Resource
from topomend.publish.node_feature import CONDITION
from topomend.sandbox import Sandbox
from topomend.wire.published.node_feature import API_VERSION

pytestmark = pytest.mark.cluster

FEATURES = Resource(API_VERSION, "nodefeatures")
NODE, NAMESPACE = "split", "default"
FLAG = f"--node-features={NAMESPACE}"


@pytest.fixture(scope="module")
def kubernetes(cluster: Sandbox) -> Kubernetes:
    return Kubernetes(cluster)


@pytest.fixture
def client(cluster: Sandbox) -> Iterator[Client]:
    """With NFD's kinds installed, and gone afterwards."""
    client = connect(str(cluster.kubeconfig))
    with served(client, kinds(), FEATURES):
        yield client
    client.close()


def test_the_labels_are_the_kubelets_policies_and_pods_change_none(
    cluster: Sandbox, kubernetes: Kubernetes, client: Client
) -> None:
    with running(cluster, kubernetes, NODE, FLAG):
        made = until(lambda: client.get(FEATURES, NODE, NAMESPACE))
        assert made["spec"]["labels"] == {
            "topomend.io/topology-ready": "true",
            "topomend.io/topology-manager-policy": "single-numa-node",
            "topomend.io/topology-manager-scope": "container",
            "topomend.io/cpu-manager-policy": "static",
            "topomend.io/memory-manager-policy": "Static",
            "topomend.io/numa-nodes": "2",
            "topomend.io/cpus-per-numa-node": "4",
        }
        nodes = made["spec"]["features"]["instances"]["topomend.numa-node"]["elements"]
        assert [node["attributes"]["cpus"] for node in nodes] == ["4", "4"]
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Node", NODE)
        assert kubernetes.condition(NODE, CONDITION).status == "True"
        before = kubernetes.state(NODE).pods
        with kubernetes.pod(NODE, "train", [container("main", cpu="4", memory="1Gi")], []):
            until(lambda: kubernetes.state(NODE).pods != before)
    publish_once(cluster, NODE, FLAG)
    assert client.get(FEATURES, NODE, NAMESPACE)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_without_nfd_the_condition_says_so_and_the_node_is_ready(cluster: Sandbox, kubernetes: Kubernetes) -> None:
    assert publish_once(cluster, NODE, FLAG) == 0
    condition = kubernetes.condition(NODE, CONDITION)
    assert (condition.status, condition.reason) == ("False", "KindNotInstalled")
    assert kubernetes.ready(NODE) == "True"
