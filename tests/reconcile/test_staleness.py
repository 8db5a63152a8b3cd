"""A silent agent is reported by an Event on its object, on a real API server."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster, events_of
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.client import NODE_TOPOLOGIES
from topomend.wire.node_topology import HEARTBEAT

pytestmark = pytest.mark.cluster


def last_heard(cluster: Cluster, node: str, minutes: int) -> str:
    """Have a node's agent be heard last so many minutes ago."""
    heard = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.publish(cluster.states[node])
    cluster.client.merge(NODE_TOPOLOGIES, node, {"status": {HEARTBEAT: heard}}, subresource="status")
    return heard


def staleness_events(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    return events_of(cluster, cluster.client.get(NODE_TOPOLOGIES, node), "TopologyStale")


def test_a_silent_agent_is_reported_once_however_many_operators_see_it(
    two_nodes: Cluster, start_operator: Callable[..., Operator]
) -> None:
    last_heard(two_nodes, NODE_B, 1)
    first = last_heard(two_nodes, NODE_A, 40)
    for _ in range(2):
        operator = start_operator()
        eventually("the operator to tell of it", lambda operator=operator: "TopologyStale" in operator.text())  # type: ignore[misc]
        operator.terminate()  # it posts what waits to be posted
    [event] = staleness_events(two_nodes, NODE_A)
    assert event["note"].startswith(f"the agent of {NODE_A} has confirmed nothing since {first}, so no pod")
    assert (event["type"], event["metadata"]["namespace"]) == ("Warning", "default")
    second = last_heard(two_nodes, NODE_A, 35)
    start_operator()
    eventually("the next staleness to be told", lambda: len(staleness_events(two_nodes, NODE_A)) == 2)
    assert sum(second in event["note"] for event in staleness_events(two_nodes, NODE_A)) == 1
    assert staleness_events(two_nodes, NODE_B) == []
