from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from topomend.kube.errors import APIError, NotFound, Unanswered
from topomend.publish.publisher import FIELD_MANAGER, HEARTBEAT_SECONDS, NODE_SECONDS, RESTART_SECONDS, Publisher
from topomend.publish.recheck import RECHECK_SECONDS

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Server:
    """An API server for one node: what is applied by one manager, and a count of requests."""

    def __init__(self) -> None:
        self.uid, self.version = "uid-1", "v1.36.3"
        self.object: dict[str, Any] | None = None
        self.foreign: dict[str, Any] = {}
        self.nodes = self.reads = self.writes = 0
        self.away = False

    def node(self, name: str) -> dict[str, Any]:
        self._answer()
        self.nodes += 1
        return {"metadata": {"name": name, "uid": self.uid}, "status": {"nodeInfo": {"kubeletVersion": self.version}}}

    def node_topology(self, name: str) -> dict[str, Any]:
        self._answer()
        self.reads += 1
        if self.object is None:
            raise NotFound(404, "NotFound", f"{name} not found")
        return deepcopy(self.object)

    def apply_node_topology(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        self._write(name, manager)
        self.object = {"status": {}, **(self.object or {}), **deepcopy(dict(content))}
        return deepcopy(self.object)

    def apply_node_topology_status(self, name: str, content: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Server-side apply: what another manager has stays."""
        self._write(name, manager)
        if self.object is None:
            raise NotFound(404, "NotFound", f"{name} not found")
        self.object["status"] = {**self.foreign, **deepcopy(dict(content["status"]))}
        return deepcopy(self.object)

    def replace_in_node_topology(self, name: str, field: str, value: object, manager: str) -> dict[str, Any]:
        self._write(name, manager)
        if self.object is None:
            raise NotFound(404, "NotFound", f"{name} not found")
        *folders, last = field.split("/")
        content = self.object
        for folder in folders:
            content = content[folder]
        content[last] = deepcopy(value)
        if last == "status":
            self.foreign = {}
        return deepcopy(self.object)

    def _write(self, name: str, manager: str) -> None:
        assert (name, manager) == ("n1", FIELD_MANAGER)
        self._answer()
        self.writes += 1

    def _answer(self) -> None:
        if self.away:
            raise Unanswered("connection refused")


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def publisher(server: Server, clock: Clock) -> Publisher:
    return Publisher(server, "n1", clock.monotonic, clock.now, jitter=lambda: 1.0)


def status(ready: str = "True", message: str = "", **fields: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": "R", "message": message}
    return {"summary": {"numaNodes": 2}, "conditions": [condition], **fields}


def since(server: Server) -> str:
    assert server.object is not None
    return str(server.object["status"]["conditions"][0]["lastTransitionTime"])


def test_a_new_object_is_owned_by_its_node_and_has_the_status(server: Server, clock: Clock) -> None:
    assert publisher(server, clock).publish(status())
    assert server.object is not None
    assert server.object["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1"}
    ]
    assert server.object["status"]["summary"] == {"numaNodes": 2}
    assert since(server) == "2026-01-02T03:04:05Z"


def test_nothing_is_written_or_asked_when_nothing_changed(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    writes, reads = server.writes, server.reads
    for _ in range(10):
        clock.seconds += 1
        assert not agent.publish(status())
    assert (server.writes, server.reads) == (writes, reads)


def test_a_restarted_agent_writes_nothing_that_the_server_has(server: Server, clock: Clock) -> None:
    publisher(server, clock).publish(status())
    writes = server.writes
    assert not publisher(server, clock).publish(status())
    assert server.writes == writes


def test_a_change_is_one_write(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    writes = server.writes
    assert agent.publish(status(pods=[{"name": "p"}]))
    assert agent.publish(status())
    assert server.writes == writes + 2
    assert server.object is not None
    assert "pods" not in server.object["status"]


def test_a_condition_keeps_its_time_until_its_status_changes(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    clock.seconds += 60
    agent.publish(status(message="in other words"))
    assert since(server) == "2026-01-02T03:04:05Z"
    agent.publish(status("False"))
    assert since(server) == "2026-01-02T03:05:05Z"


def test_an_object_that_was_deleted_is_there_again_within_the_recheck(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    server.object = None
    clock.seconds += RECHECK_SECONDS
    assert agent.publish(status())
    assert server.object is not None


def test_a_deleted_object_is_recreated_when_the_next_change_finds_it_gone(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    server.object = None
    with pytest.raises(NotFound):
        agent.publish(status("False"))
    assert agent.publish(status("False"))


def test_an_object_that_was_edited_by_hand_is_put_right(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    assert server.object is not None
    server.object["status"]["summary"] = {"numaNodes": 99}
    server.foreign = {"pods": [{"name": "imagined"}]}
    server.object["status"] |= server.foreign
    clock.seconds += RECHECK_SECONDS
    assert agent.publish(status())
    assert server.object["status"].keys() == {"summary", "conditions", "heartbeatTime"}
    assert server.object["status"]["summary"] == {"numaNodes": 2}


@pytest.mark.parametrize("foreign", [[], [{"kind": "Node", "name": "n2", "uid": "uid-2"}]], ids=["none", "another"])
def test_the_objects_only_owner_is_its_node(server: Server, clock: Clock, foreign: list[dict[str, str]]) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    assert server.object is not None
    own = server.object["metadata"]["ownerReferences"]
    server.object["metadata"]["ownerReferences"] = [*own, *foreign] if foreign else []
    clock.seconds += RECHECK_SECONDS
    assert agent.publish(status())
    assert server.object["metadata"]["ownerReferences"] == own


def test_a_node_that_was_recreated_owns_the_object_again(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    server.uid = "uid-2"
    clock.seconds += RECHECK_SECONDS
    assert agent.publish(status())
    assert server.object is not None
    assert server.object["metadata"]["ownerReferences"][0]["uid"] == "uid-2"


def test_the_kubelets_version_is_asked_for_again_with_the_recheck_or_when_told(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    assert agent.node().kubelet_version == "v1.36.3"
    server.version = "v1.37.0"
    assert agent.node().kubelet_version == "v1.36.3"
    agent.forget()
    assert agent.node().kubelet_version == "v1.37.0"


@pytest.mark.parametrize("seconds", [0.5, 5.0, 45.0])
def test_a_version_that_a_restarted_kubelet_posts_late_is_read_soon_with_few_requests(
    server: Server, clock: Clock, seconds: float
) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    nodes, seen = server.nodes, 0.0
    agent.kubelet_restarted()
    for turn in range(300):
        clock.seconds = turn * 0.75
        server.version = "v1.37.0" if clock.seconds >= seconds else "v1.36.3"
        agent.publish(status())
        if not seen and agent.node().kubelet_version == "v1.37.0":
            seen = clock.seconds
    assert seconds <= seen <= seconds + NODE_SECONDS + 0.75
    assert server.nodes - nodes <= 1 + RESTART_SECONDS / NODE_SECONDS
    assert server.reads == 2, "the NodeTopology is read again once"


def test_after_an_answer_was_lost_what_the_server_has_is_looked_at(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    server.away = True
    with pytest.raises(APIError):
        agent.publish(status("False"))
    server.away = False
    reads = server.reads
    assert agent.publish(status("False"))
    assert server.reads == reads + 1


def test_rechecks_of_nodes_started_together_drift_apart(server: Server, clock: Clock) -> None:
    early = Publisher(server, "n1", clock.monotonic, clock.now, jitter=lambda: 0.0)
    early.publish(status())
    reads = server.reads
    clock.seconds = RECHECK_SECONDS * 0.75
    early.publish(status())
    assert server.reads == reads + 1


# Heartbeats


def beat(server: Server) -> str:
    assert server.object is not None
    return str(server.object["status"]["heartbeatTime"])


def pass_time(agent: Publisher, clock: Clock, seconds: int) -> list[float]:
    """Publish the same again every second; the times at which something was written."""
    same, written = status(), []
    for _ in range(seconds):
        clock.seconds += 1
        if agent.publish(same):
            written.append(clock.seconds)
    return written


@pytest.mark.parametrize(("jitter", "gap"), [(0.0, HEARTBEAT_SECONDS), (1.0, HEARTBEAT_SECONDS * 1.25)])
def test_a_heartbeat_is_written_at_most_every_ten_minutes_and_at_the_latest_after_a_quarter_more(
    server: Server, clock: Clock, jitter: float, gap: float
) -> None:
    agent = Publisher(server, "n1", clock.monotonic, clock.now, jitter=lambda: jitter)
    agent.publish(status())
    assert beat(server) == "2026-01-02T03:04:05Z"
    assert pass_time(agent, clock, 4000) == [gap * number for number in range(1, int(4000 // gap) + 1)]
    assert since(server) == "2026-01-02T03:04:05Z"


def test_a_change_is_a_heartbeat_too_and_puts_the_next_one_off(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    pass_time(agent, clock, 500)
    agent.publish(status("False"))
    assert beat(server) == "2026-01-02T03:12:25Z"
    agent.publish(status())
    assert pass_time(agent, clock, 740) == []


def test_an_agent_that_is_restarted_again_and_again_writes_no_more_heartbeats_than_another(
    server: Server, clock: Clock
) -> None:
    publisher(server, clock).publish(status())
    writes = server.writes
    for _ in range(40):
        pass_time(publisher(server, clock), clock, 50)
    assert server.writes - writes == 2000 // int(HEARTBEAT_SECONDS * 1.25)


@pytest.mark.parametrize("time", [None, "", 5, "yesterday", "2026-01-02T03:04:05", "2099-01-01T00:00:00Z"])
def test_a_heartbeat_that_this_clock_cannot_have_written_is_written_again(
    server: Server, clock: Clock, time: object
) -> None:
    publisher(server, clock).publish(status())
    assert server.object is not None
    server.object["status"]["heartbeatTime"] = time
    assert publisher(server, clock).publish(status())
    assert beat(server) == "2026-01-02T03:04:05Z"


def test_heartbeats_wait_for_an_api_server_that_is_away(server: Server, clock: Clock) -> None:
    agent = publisher(server, clock)
    agent.publish(status())
    server.away = True
    clock.seconds += HEARTBEAT_SECONDS * 2
    with pytest.raises(APIError):
        agent.publish(status())
    server.away = False
    assert agent.publish(status())
    assert beat(server) == "2026-01-02T03:24:05Z"
