"""When the object for Node Feature Discovery is written. On a cluster: tests/agent."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.clock import Clock

from topomend.kube.errors import APIError, NotFound
from topomend.model.nodes.node_features import NodeFeatures
from topomend.publish.node_feature import CONDITION, UNREADY_SECONDS, NodeFeaturePublisher
from topomend.publish.publisher import FIELD_MANAGER, NodeFacts

NODE = NodeFacts("uid", "v1.36.3")
READY, UNREADY = ({"conditions": [{"type": "Ready", "status": status}]} for status in ("True", "False"))


class Server:
    """An API server for one object, and an agent that publishes it."""

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.error: APIError | None = None
        self.writes = self.computed = 0
        self.clock = Clock(0.0)
        self.machine, self.policy = object(), "restricted"
        self._publisher = NodeFeaturePublisher(self, "n1", "agents", self.clock)

    def node_feature(self, name: str, namespace: str) -> dict[str, Any]:
        if self.object is None:
            raise NotFound(404, "NotFound", f"{namespace}/{name}")
        return self.object

    def apply_node_feature(self, name: str, namespace: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        assert (name, namespace, manager) == ("n1", "agents", FIELD_MANAGER)
        self.writes += 1
        if self.error:
            raise self.error
        managed = [{"manager": manager, "fieldsV1": {"f:spec": {}}}]
        self.object = {**content, "metadata": {**content["metadata"], "managedFields": managed}}
        return self.object

    def publish(self, status: Mapping[str, Any]) -> tuple[str, str]:
        """The status and the reason of the condition that the publisher adds."""
        result = self._publisher.publish(self._features, (self.machine, self.policy), status, NODE)
        added = result["conditions"][-1]
        assert added["type"] == CONDITION
        return added["status"], added["reason"]

    def _features(self, is_ready: bool) -> NodeFeatures:
        self.computed += 1
        labels = {"topology-ready": str(is_ready).lower(), **({"policy": self.policy} if is_ready else {})}
        return NodeFeatures(labels, {}, {})

    def labels(self) -> dict[str, str]:
        assert self.object is not None
        labels: dict[str, str] = self.object["spec"]["labels"]
        return labels


@pytest.fixture
def server() -> Server:
    return Server()


def test_it_is_written_once_and_again_where_the_kubelet_has_another_policy(server: Server) -> None:
    for _ in range(3):
        assert server.publish({**READY}) == ("True", "Published")
    assert (server.writes, server.computed) == (1, 1), "what pods take is no feature"
    server.policy = "single-numa-node"
    server.publish(READY)
    assert (server.writes, server.labels()["topomend.io/policy"]) == (2, "single-numa-node")


def test_a_machine_that_was_read_again_and_is_the_same_is_no_write(server: Server) -> None:
    server.publish(READY)
    server.machine = object()
    server.publish(READY)
    assert (server.writes, server.computed) == (1, 2)


def test_a_kubelet_that_restarts_changes_no_label(server: Server) -> None:
    server.publish(READY)
    server.publish(UNREADY)
    server.clock.now += UNREADY_SECONDS - 1
    assert server.publish(UNREADY) == ("True", "Published")
    server.publish(READY)
    server.clock.now += UNREADY_SECONDS - 1
    server.publish(UNREADY)
    assert (server.writes, server.labels()["topomend.io/topology-ready"]) == (1, "true")


def test_a_node_that_stays_unready_is_said_to_be_and_loses_the_labels_of_its_kubelet(server: Server) -> None:
    server.publish(READY)
    server.publish(UNREADY)
    server.clock.now += UNREADY_SECONDS
    for _ in range(2):
        server.publish({**UNREADY})
    assert (server.writes, server.labels()) == (2, {"topomend.io/topology-ready": "false"})
    server.publish(READY)
    assert server.labels()["topomend.io/topology-ready"] == "true"


def test_without_nfd_the_condition_says_so(server: Server) -> None:
    server.error = NotFound(404, "NotFound", "no kind")
    for _ in range(2):
        assert server.publish(READY) == ("False", "KindNotInstalled")
    assert server.writes == 1
