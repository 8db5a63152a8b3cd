"""Which unbound pods are deleted, on a real API server: only where another would have more nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.builders import applied, node_state, snapshot_of
from tests.clock import Clock
from tests.clusters import Cluster, pod
from tests.waiting import eventually

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.eligibility import Limits
from topomend.kube.client import PODS, Resource
from topomend.model.cluster import WatchedPod
from topomend.model.narrowing import Narrowing
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.store import Store
from topomend.reconcile.unbound_pods import CHECK_SECONDS, PATIENCE_SECONDS, UnboundPods
from topomend.relaunch import manifest
from topomend.runtime.backoff import Backoff
from topomend.wire.cluster import read_watched_pod
from topomend.wire.group import FIT_GATE

pytestmark = pytest.mark.cluster

REPLICA_SETS = Resource("apps/v1", "replicasets")
LABELS = {"app": "unbound"}


@pytest.fixture
def replica(two_nodes: Cluster) -> Iterator[WatchedPod]:
    """The only pod of a ReplicaSet, as the operator leaves it for a node that no scheduler knows."""
    spec = {**pod("", 1)["spec"], "schedulingGates": [{"name": FIT_GATE}]}
    template = {"metadata": {"labels": LABELS}, "spec": spec}
    content = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"generateName": "unbound-"},
        "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template},
    }
    made = two_nodes.client.create(REPLICA_SETS, content, "default")["metadata"]
    try:
        gated = eventually("its pod", lambda: _pods(two_nodes))[0]
        name = gated["metadata"]["name"]
        two_nodes.client.merge(PODS, name, manifest.launch(read_watched_pod(gated), Narrowing(("nowhere",))), "default")
        yield eventually("the scheduler to find no node", lambda: _unschedulable(two_nodes, name))
    finally:
        two_nodes.client.delete(REPLICA_SETS, made["name"], "default", uid=made["uid"])
        two_nodes.clear()


def _pods(cluster: Cluster) -> list[dict[str, Any]]:
    return [content for content in cluster.pods() if content["metadata"].get("labels") == LABELS]


def _unschedulable(cluster: Cluster, name: str) -> WatchedPod | None:
    watched = read_watched_pod(cluster.get(name))
    return watched if watched.unschedulable else None


class Scene:
    """The parts around one unbound pod; ``nodes`` is whether another node admits it."""

    def __init__(self, cluster: Cluster, unbound: WatchedPod, *, nodes: bool = True, opted_out: str = "") -> None:
        self.clock, self.store = Clock(0.0), Store()
        self.backoff = Backoff(self.clock)
        snapshot = snapshot_of(node_state()) if nodes else Snapshot()
        self.store.apply(Whole(applied(changes.PodUpdated(unbound, 0.0), to=snapshot)))
        limits = NamespaceLimits(cluster.client, Limits(opted_out))
        self.pods = UnboundPods(cluster.client, self.store, limits, self.backoff, self.clock)

    def check_after(self, seconds: float) -> None:
        self.clock.now = seconds
        self.pods.check()


@dataclass(frozen=True)
class Whole:
    """A change to a snapshot that a test has built."""

    snapshot: Snapshot

    def apply_to(self, _: Snapshot) -> Snapshot:
        return self.snapshot


def test_a_replica_that_other_nodes_admit_is_deleted_and_the_next_one_goes_to_all_of_them(
    two_nodes: Cluster, replica: WatchedPod
) -> None:
    assert replica.owner
    scene = Scene(two_nodes, replica)
    scene.check_after(PATIENCE_SECONDS - CHECK_SECONDS)
    assert [content["metadata"]["uid"] for content in _pods(two_nodes)] == [replica.uid]
    assert scene.pods.widened(replica) is replica
    scene.check_after(PATIENCE_SECONDS + 1)
    eventually("its controller's next pod", lambda: replica.uid not in _uids(two_nodes) and _uids(two_nodes))
    assert scene.pods.widened(replica).scheduler_rules
    assert scene.backoff.remaining(replica.owner.uid) > 0


@pytest.mark.parametrize(
    "fields", [{"nodes": False}, {"opted_out": "the operator runs with --mode observe"}], ids=["no node", "opted out"]
)
def test_a_replica_is_kept_if_no_other_node_admits_it_or_refusals_are_only_explained(
    fields: dict[str, Any], two_nodes: Cluster, replica: WatchedPod
) -> None:
    Scene(two_nodes, replica, **fields).check_after(PATIENCE_SECONDS + 1)
    assert _uids(two_nodes) == {replica.uid}


def _uids(cluster: Cluster) -> set[str]:
    return {
        content["metadata"]["uid"] for content in _pods(cluster) if not content["metadata"].get("deletionTimestamp")
    }
