"""An agent that is silent or not believed is reported by an Event on its object, on a real API server too."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.builders import applied, node, node_state, snapshot_of
from tests.clock import Clock
from tests.clusters import NODE_A, NODE_B, Cluster, events_of
from tests.operator_process import Operator
from tests.reconcile.emitted import Emitted
from tests.waiting import eventually

from topomend.cache import changes
from topomend.cache.changes import SILENT
from topomend.cache.snapshot import Snapshot
from topomend.kube.errors import NotFound, Unanswered, refused
from topomend.kube.resources import NODE_TOPOLOGIES, Resource
from topomend.reconcile.nodes.staleness import DISTRUST_SECONDS, Staleness
from topomend.reconcile.store import Store
from topomend.wire.published.node_topology import HEARTBEAT


def last_heard(cluster: Cluster, node: str, minutes: int) -> str:
    """Have a node's agent be heard last so many minutes ago."""
    heard = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.publish(cluster.states[node])
    cluster.client.merge(NODE_TOPOLOGIES, node, {"status": {HEARTBEAT: heard}}, subresource="status")
    return heard


def begin_anew(cluster: Cluster) -> None:
    """Have the nodes publish objects of which nothing was told yet: those of other tests may have been silent too."""
    for name in (NODE_A, NODE_B):
        with suppress(NotFound):
            uid = cluster.client.get(NODE_TOPOLOGIES, name)["metadata"]["uid"]
            cluster.client.delete(NODE_TOPOLOGIES, name, uid=uid)


def staleness_events(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    return events_of(cluster, cluster.client.get(NODE_TOPOLOGIES, node), "TopologyStale")


@pytest.mark.cluster
def test_a_silent_agent_is_reported_once_however_many_operators_see_it(
    two_nodes: Cluster, start_operator: Callable[..., Operator]
) -> None:
    begin_anew(two_nodes)
    last_heard(two_nodes, NODE_B, 1)
    first = last_heard(two_nodes, NODE_A, 40)
    for _ in range(2):
        operator = start_operator()
        eventually("the operator to tell of it", lambda operator=operator: "TopologyStale" in operator.text())  # type: ignore[misc]
        eventually("it to be posted", lambda: staleness_events(two_nodes, NODE_A))
        operator.terminate()  # it posts what waits to be posted
    [event] = staleness_events(two_nodes, NODE_A)
    assert event["note"].startswith(f"the agent of {NODE_A} has confirmed nothing since {first}, so no pod")
    assert (event["type"], event["metadata"]["namespace"]) == ("Warning", "default")
    second = last_heard(two_nodes, NODE_A, 35)
    start_operator()
    eventually("the next staleness to be told", lambda: len(staleness_events(two_nodes, NODE_A)) == 2)
    assert sum(second in event["note"] for event in staleness_events(two_nodes, NODE_A)) == 1
    assert staleness_events(two_nodes, NODE_B) == []


@pytest.mark.cluster
def test_an_agent_that_is_not_believed_is_reported_once_it_has_not_been_for_a_while_and_again_after_it_was(
    two_nodes: Cluster,
) -> None:
    two_nodes.publish(two_nodes.states[NODE_A])
    store, clock, emitted = Store(), Clock(), Emitted()
    staleness = Staleness(two_nodes.client, store, emitted.announcer, clock)

    def reported_after(seconds: float, *, cpus: int) -> list[str]:
        """What was reported until so many seconds after the Node had so many CPUs."""
        store.apply(changes.NodeUpdated(node(NODE_A, capacity={"cpu": cpus * 1000})))
        for wait in (0.0, seconds):
            clock.now += wait
            staleness.report()
        return emitted.notes("TopologyNotBelieved")

    store.apply(changes.Published(node_state(name=NODE_A), "1"))
    words = f"no pod is placed on {NODE_A}: its agent is not believed: it publishes 8 CPUs, its Node has 4"
    assert reported_after(DISTRUST_SECONDS - 1, cpus=4) == []
    assert reported_after(DISTRUST_SECONDS - 1, cpus=8) == []
    assert reported_after(DISTRUST_SECONDS, cpus=4) == [words]
    assert reported_after(DISTRUST_SECONDS, cpus=4) == [words]
    assert reported_after(DISTRUST_SECONDS, cpus=8) == [words]
    assert reported_after(DISTRUST_SECONDS, cpus=4) == [words, words]


HEARTBEAT_TIME = "2026-01-01T00:00:00Z"

PUBLISHED = snapshot_of(*(node_state(name=name) for name in ("a", "b")))


def silent() -> Snapshot:
    """Both agents are silent."""
    publications = {
        name: replace(publication, agent_problem=SILENT, heartbeat=HEARTBEAT_TIME)
        for name, publication in PUBLISHED.publications.items()
    }
    return replace(PUBLISHED, publications=publications)


def not_believed() -> Snapshot:
    """Neither agent is believed."""
    return applied(*(changes.NodeUpdated(node(name, capacity={"cpu": 4000})) for name in ("a", "b")), to=PUBLISHED)


class Topologies:
    """The objects of both nodes, of which the first may be refused."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def get(self, _: Resource, name: str) -> dict[str, Any]:
        if self.error and name == "a":
            raise self.error
        return {"metadata": {"name": name, "uid": name}, "status": {HEARTBEAT: HEARTBEAT_TIME}}


REPORTS = pytest.mark.parametrize(
    ("snapshot", "reason"),
    [(silent(), "TopologyStale"), (not_believed(), "TopologyNotBelieved")],
    ids=["silent", "not believed"],
)


@REPORTS
def test_an_agent_whose_object_is_refused_keeps_no_other_from_being_reported_and_is_reported_later(
    snapshot: Snapshot, reason: str
) -> None:
    store, clock, emitted, api = Store(), Clock(), Emitted(), Topologies()
    store.snapshot = snapshot
    staleness = Staleness(api, store, emitted.announcer, clock)  # type: ignore[arg-type]
    api.error = refused(500, b"{}")
    for _ in range(3):
        staleness.report()
        clock.now += DISTRUST_SECONDS
    assert [(event[0], event[2]) for event in emitted.events] == [("NodeTopology/b", reason)]
    api.error = None
    staleness.report()
    assert [(event[0], event[2]) for event in emitted.events[1:]] == [("NodeTopology/a", reason)]


@REPORTS
def test_an_api_server_that_does_not_answer_ends_the_reports(snapshot: Snapshot, reason: str) -> None:
    store, clock, emitted, api = Store(), Clock(), Emitted(), Topologies()
    store.snapshot = snapshot
    staleness = Staleness(api, store, emitted.announcer, clock)  # type: ignore[arg-type]
    api.error = Unanswered("away")
    with suppress(Unanswered):
        staleness.report()
    clock.now += DISTRUST_SECONDS
    with pytest.raises(Unanswered):
        staleness.report()
    assert emitted.reasons() == []
    api.error = None
    staleness.report()
    assert emitted.reasons() == [reason] * 2
