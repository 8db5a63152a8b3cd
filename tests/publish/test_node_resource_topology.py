"""When the second object is written, and what the condition says where it is not. On a cluster: tests/agent."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.clock import Clock

from topomend.kube.errors import (
    APIError,
    Conflict,
    DeniedForNow,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    ServerFailed,
    TooManyRequests,
    Unanswered,
)
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.zone import Zone
from topomend.publish.node_resource_topology import CONDITION, Figures, NodeResourceTopologyPublisher
from topomend.publish.publisher import FIELD_MANAGER, NodeFacts
from topomend.publish.recheck import RECHECK_SECONDS
from topomend.publish.second_object import DELAYS

NODE = NodeFacts("uid", "v1.36.3")


def managed_by(manager: str) -> list[dict[str, Any]]:
    return [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:zones": {}}}]


class Server:
    """An API server for one object, and an agent that publishes it."""

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.error: APIError | None = None
        self.reads = self.writes = self.computed = 0
        self.clock = Clock(0.0)
        self._publisher = NodeResourceTopologyPublisher(self, "n1", self.clock)
        self.zone = Zone(0, {0: 10}, ())

    def node_resource_topology(self, name: str) -> dict[str, Any]:
        self.reads += 1
        if self.object is None:
            raise NotFound(404, "NotFound", name)
        return self.object

    def apply_node_resource_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        assert (name, manager) == ("n1", FIELD_MANAGER)
        self.writes += 1
        if self.error:
            raise self.error
        self.object = {**content, "metadata": {**content["metadata"], "managedFields": managed_by(manager)}}
        return self.object

    def publish(self, status: Mapping[str, Any], node: NodeFacts = NODE) -> tuple[str, str]:
        """The status and the reason of the condition that the publisher adds."""
        added = self.added(status, node)
        return added["status"], added["reason"]

    def added(self, status: Mapping[str, Any], node: NodeFacts = NODE) -> Mapping[str, Any]:
        """The condition that the publisher adds."""
        result = self._publisher.publish(Figures(KubeletSettings(), (), self._zones, lambda: None), status, node)
        *others, added = result["conditions"]
        assert others == status["conditions"]
        assert added["type"] == CONDITION
        condition: Mapping[str, Any] = added
        return condition

    def _zones(self) -> tuple[Zone]:
        self.computed += 1
        return (self.zone,)


def status(ready: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": ready}]}


@pytest.fixture
def server() -> Server:
    return Server()


def test_the_object_is_written_once_and_again_where_something_changed(server: Server) -> None:
    unchanged = status()
    for _ in range(3):
        assert server.publish(unchanged) == ("True", "Published")
    assert (server.reads, server.writes, server.computed) == (1, 1, 1)
    server.publish(status())
    assert (server.writes, server.computed) == (1, 2), "a change that the object does not show is no write"
    server.zone = Zone(0, {0: 11}, ())
    server.publish(status())
    server.publish(status(), NodeFacts("another", "v1.36.3"))
    assert (server.reads, server.writes) == (1, 3)


def test_what_was_published_last_stays_while_the_node_is_not_ready(server: Server) -> None:
    server.publish(status())
    published = server.object
    server.zone = Zone(0, {0: 11}, ())
    assert server.publish(status("False")) == ("False", "NotReady")
    assert server.object is published
    assert server.publish(status()) == ("True", "Published")
    assert server.writes == 2


def test_an_object_of_another_writer_is_left_alone_until_the_next_recheck(server: Server) -> None:
    server.object = {"metadata": {"name": "n1", "managedFields": managed_by("nfd")}, "zones": []}
    for _ in range(2):
        assert server.publish(status()) == ("False", "OtherWriter")
    assert (server.reads, server.writes) == (1, 0)
    server.object = None
    server.clock.now += RECHECK_SECONDS
    assert server.publish(status()) == ("True", "Published")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotFound(404, "NotFound", "no kind"), "KindNotInstalled"),
        (Forbidden(403, "Forbidden", "no"), "Forbidden"),
        (Conflict(409, "Conflict", "nfd"), "OtherWriter"),
        (Invalid(422, "Invalid", "zones"), "Refused"),
    ],
)
def test_a_refusal_is_the_conditions_reason_and_is_not_repeated_at_once(
    error: Refused, reason: str, server: Server
) -> None:
    server.error = error
    for _ in range(2):
        assert server.publish(status()) == ("False", reason)
    assert server.writes == 1
    server.error = None
    server.clock.now += RECHECK_SECONDS
    assert server.publish(status()) == ("True", "Published")


@pytest.mark.parametrize(
    "error",
    [
        ServerFailed(500, "InternalError", "conversion webhook failed"),
        DeniedForNow(429, "TooManyRequests", 'admission webhook "x" denied the request'),
        Unanswered("no answer"),
    ],
)
def test_a_failure_of_the_server_is_the_conditions_reason_and_is_tried_again(error: APIError, server: Server) -> None:
    """It is not raised: a webhook that is gone for this kind alone must not keep the NodeTopology from its readers."""
    server.error, unchanged = error, status()
    assert server.publish(unchanged) == ("False", "ServerFailed")
    server.error = None
    server.clock.now += DELAYS.first
    assert server.publish(unchanged) == ("True", "Published")


def test_a_lasting_failure_is_asked_about_ever_less_often_and_always_told_alike(server: Server) -> None:
    told = set()
    for second in range(3600):
        server.clock.now = float(second)
        server.error = ServerFailed(500, "InternalError", f"dial tcp 10.0.0.1:{second}: refused")
        result = server.added(status())
        told.add((result["reason"], result["message"]))
    assert len(told) == 1, "each change of the condition is a write of the NodeTopology"
    assert 3600 / DELAYS.longest <= server.writes <= 2 * 3600 / DELAYS.longest + 10


def test_the_server_is_left_alone_for_as_long_as_it_asks(server: Server) -> None:
    server.error = TooManyRequests(429, "TooManyRequests", "", retry_after=30.0)
    for _ in range(30):
        server.publish(status())
        server.clock.now += 1
    assert server.writes == 1


def test_an_object_that_somebody_deletes_is_there_again_after_the_recheck(server: Server) -> None:
    unchanged = status()
    server.publish(unchanged)
    server.object = None
    server.publish(unchanged)
    assert server.object is None
    server.clock.now += RECHECK_SECONDS
    server.publish(unchanged)
    assert server.object is not None
