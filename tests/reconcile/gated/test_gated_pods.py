"""Pods behind the fit gate: each is ungated once, for nodes that admit it, and not before older ones."""

from dataclasses import replace

import pytest
from tests.builders import guaranteed_pod, node, running, snapshot_of
from tests.clusters import NODE_A, NODE_B, Cluster
from tests.reconcile.parts import EMPTY_A, EMPTY_B, Parts
from tests.refused_pods import gated, gates, watched

from topomend.cache import changes
from topomend.kube.resources import CLAIMS, PODS
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.scheduling import NodeSelectorTerm, Owner, Placement, Requirement, WatchedPod
from topomend.reconcile.gated.gated_pods import MAX_YIELDS, SETTLE_SECONDS, YIELD_SECONDS, GatedPods
from topomend.reconcile.placement.volumes import COMING_SECONDS, RETRY_SECONDS
from topomend.reconcile.pod_id import PodID, WorkloadID
from topomend.reconcile.result import DONE, Result
from topomend.relaunch.narrowed_affinity import narrowing_of
from topomend.replay.admission import release
from topomend.runtime.backoff import Backoff, Exponential
from topomend.wire.group import FIT_GATE

pytestmark = pytest.mark.cluster

ONE_HOLE = running(EMPTY_B, guaranteed_pod("low", 3), guaranteed_pod("high", 2))
"""Two CPUs are free on NUMA node 1, and none on NUMA node 0."""


def _unchanged(pod: WatchedPod) -> WatchedPod:
    return pod


class Gating(Parts):
    """Gated pods of the cluster beside these parts."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, ONE_HOLE)
        self.backoff = Backoff(self.clock, Exponential(8.0, 8.0))
        self.gated_pods = GatedPods(self.collaborators, self.backoff, _unchanged, self.reported.append)

    def reconcile(self, pod: WatchedPod) -> Result:
        return self.gated_pods.reconcile(PodID.of(pod))


@pytest.fixture
def gating(cluster: Cluster) -> Gating:
    return Gating(cluster)


def test_a_pod_is_ungated_for_the_nodes_that_admit_it_and_assumed_there(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train")
    gating.watch(pod)
    assert gating.reconcile(pod) == DONE
    assert gates(cluster, "train") == ()
    assert narrowing_of(watched(cluster, "train").node_affinity).hosts == (NODE_B,)
    assert gating.assumed("train") == (NODE_B,)
    assert gating.emitted.reasons() == ["Ungated"]


def test_a_pod_that_still_looks_gated_is_not_ungated_again(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train")
    gating.watch(pod)
    gating.reconcile(pod)
    assert gating.reconcile(pod) == DONE
    assert gating.emitted.reasons() == ["Ungated"]
    assert gating.reported == []


def test_a_pod_that_no_node_admits_waits_for_capacity(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train", 3)
    gating.watch(pod)
    result = gating.reconcile(pod)
    assert result.on_capacity
    assert gates(cluster, "train") == (FIT_GATE,)
    assert gating.emitted.reasons() == ["UngateDeferred"]


@pytest.mark.parametrize("change", ["another gate", "being deleted", "another pod of the name"])
def test_a_pod_whose_turn_it_is_not_is_left_alone(change: str, gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train", 2, "example.com/quota") if change == "another gate" else gated(cluster, "train")
    gating.watch(replace(pod, deleting=change == "being deleted"))
    asked = replace(pod, uid="another") if change == "another pod of the name" else pod
    assert gating.reconcile(asked) == DONE
    assert gates(cluster, "train") == pod.gates
    assert gating.emitted.events == []


def test_a_pod_that_has_changed_since_is_read_again_instead(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train")
    gating.watch(pod)
    cluster.client.merge(PODS, "train", {"metadata": {"labels": {"changed": "true"}}}, "default")
    assert gating.reconcile(pod) == DONE
    assert gates(cluster, "train") == (FIT_GATE,)
    assert gating.reported == [changes.PodUpdated(watched(cluster, "train"), gating.clock.now)]
    assert gating.assumed("train") == ()
    gating.apply(*gating.reported)
    gating.reconcile(pod)
    assert gates(cluster, "train") == ()


def longest_fitting(gating: Gating) -> float | None:
    return gating.metrics.registry.get_sample_value("topomend_operator_gated_though_fits_seconds")


def test_how_long_a_pod_stays_gated_is_counted_from_when_a_node_admits_it(gating: Gating, cluster: Cluster) -> None:
    pod, too_large = gated(cluster, "train"), gated(cluster, "large", 3)
    gating.watch(pod, too_large)
    gating.reconcile(too_large)
    gating.clock.now += 50
    assert longest_fitting(gating) == 0
    cluster.client.merge(PODS, "train", {"metadata": {"labels": {"changed": "true"}}}, "default")
    gating.reconcile(pod)  # which is not ungated: it has changed
    gating.clock.now += 100
    assert longest_fitting(gating) == 100
    gating.watch(watched(cluster, "train"))
    gating.reconcile(pod)
    gating.watch(watched(cluster, "train"))
    assert gates(cluster, "train") == ()
    assert longest_fitting(gating) == 0


def test_a_pod_whose_place_was_taken_no_longer_counts_as_one_that_fits(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train")
    gating.watch(pod)
    cluster.client.merge(PODS, "train", {"metadata": {"labels": {"changed": "true"}}}, "default")
    gating.reconcile(pod)
    gating.clock.now += 100
    gating.apply(changes.Published(running(ONE_HOLE, guaranteed_pod("taken", 2)), "9"))
    gating.watch(watched(cluster, "train"))
    gating.reconcile(watched(cluster, "train"))
    assert longest_fitting(gating) == 0


def test_a_pod_that_is_gone_gives_its_node_back(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train")
    gating.watch(pod)
    cluster.remove(cluster.get("train"))
    assert gating.reconcile(pod) == DONE
    assert gating.reported == [changes.PodRemoved("default", "train", pod.uid, gating.clock.now)]
    assert gating.assumed("train") == ()


def test_a_pod_that_was_ungated_and_whose_answer_was_lost_stays_assumed(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train")
    gating.watch(pod)
    gating.reconcile(pod)
    restarted = GatedPods(gating.collaborators, gating.backoff, _unchanged, gating.reported.append)
    assert restarted.reconcile(PodID("default", "train", pod.uid)) == DONE
    assert gating.assumed("train") == (NODE_B,)
    assert isinstance(gating.reported[0], changes.PodUpdated)


def test_pods_of_a_controller_whose_pods_are_refused_wait_longer(gating: Gating, cluster: Cluster) -> None:
    pod = replace(gated(cluster, "train"), owner=Owner("ReplicaSet", "web", "9", "apps/v1"))
    gating.watch(pod)
    gating.backoff.failed(WorkloadID.of(pod), "an earlier pod")
    result = gating.reconcile(pod)
    assert result.after is not None
    assert 0 < result.after <= 8
    assert gates(cluster, "train") == (FIT_GATE,)
    gating.clock.now += 8
    gating.reconcile(pod)
    assert gates(cluster, "train") == ()


def test_the_oldest_pod_goes_first_and_holds_up_a_younger_one_for_a_moment_only(
    gating: Gating, cluster: Cluster
) -> None:
    older = replace(gated(cluster, "older"), creation_time="2026-01-01T00:00:00Z")
    younger = replace(gated(cluster, "younger"), creation_time="2026-01-01T00:00:01Z")
    gating.watch(older, younger)
    for _ in range(MAX_YIELDS):
        assert gating.reconcile(younger) == Result(YIELD_SECONDS, on_any_change=True)
    assert gating.assumed("younger") == ()
    gating.reconcile(younger)
    assert (gates(cluster, "older"), gates(cluster, "younger")) == ((FIT_GATE,), ())


def test_a_pod_that_only_the_scheduler_can_judge_waits_for_assumed_pods_for_some_seconds_only(
    gating: Gating, cluster: Cluster
) -> None:
    pod = replace(gated(cluster, "train", 1), scheduler_rules=("claims",))
    gating.watch(pod)
    low_is_free = release(running(EMPTY_A, guaranteed_pod("low", 3), guaranteed_pod("high", 3)), "ns", "low")
    gating.apply(
        changes.NodeUpdated(node(NODE_A)),
        changes.Published(low_is_free, "9"),
        changes.PodAssumed(guaranteed_pod("wide", 3), (NODE_A,), gating.clock.now),
    )
    for _ in range(MAX_YIELDS):
        assert gating.reconcile(pod) == Result(SETTLE_SECONDS)
    assert gates(cluster, "train") == (FIT_GATE,)
    assert gating.reconcile(pod) == DONE
    assert gates(cluster, "train") == ()
    assert narrowing_of(watched(cluster, "train").node_affinity).hosts == (NODE_B,)


def test_who_leads_again_has_young_pods_yield_anew(gating: Gating, cluster: Cluster) -> None:
    older = replace(gated(cluster, "older"), creation_time="2026-01-01T00:00:00Z")
    younger = replace(gated(cluster, "younger"), creation_time="2026-01-01T00:00:01Z")
    gating.watch(older, younger)
    for _ in range(MAX_YIELDS):
        gating.reconcile(younger)
    gating.gated_pods.take_over()
    assert gating.reconcile(younger) == Result(YIELD_SECONDS, on_any_change=True)


def test_a_pod_that_waits_for_its_alignment_alone_is_no_reason_to_gate_its_controllers_pods(
    gating: Gating, cluster: Cluster
) -> None:
    asks, too_large = (
        replace(pod, pod=replace(pod.pod, alignment="single-numa-node"))
        for pod in (gated(cluster, "asks", 2), gated(cluster, "too-large", 9))
    )
    gating.watch(asks, too_large)
    loose = replace(ONE_HOLE.kubelet, topology_manager_policy="best-effort", cpu_manager_policy="none")
    gating.apply(changes.Published(replace(ONE_HOLE, kubelet=loose), "9"))
    for pod in (asks, too_large):
        gating.reconcile(pod)
    assert gates(cluster, "asks") == (FIT_GATE,)
    assert gating.gated_pods.is_held_for_alignment(asks)
    assert not gating.gated_pods.is_held_for_alignment(too_large)
    gating.apply(changes.Published(ONE_HOLE, "10"))
    gating.reconcile(asks)
    assert gates(cluster, "asks") == ()


def test_a_pod_is_let_go_for_nodes_on_which_kube_scheduler_preempts_and_assumed_there(
    gating: Gating, cluster: Cluster
) -> None:
    pod = gated(cluster, "train", 3)
    gating.watch(pod)
    gating.gated_pods.leave_to_scheduler(pod, (NODE_B,), ())
    assert gates(cluster, "train") == ()
    assert narrowing_of(watched(cluster, "train").node_affinity).hosts == (NODE_B,)
    assert gating.assumed("train") == (NODE_B,)
    (note,) = gating.emitted.notes("Ungated")
    assert note == f"kube-scheduler may evict pods of lower priority for it on {NODE_B}"
    assert gating.reconcile(pod) == DONE, "it still looks gated"


FULL_A = running(EMPTY_A, guaranteed_pod("four", 4), guaranteed_pod("three", 3))


@pytest.mark.parametrize("useless", [(), (NODE_B,)])
def test_a_pod_of_unknown_volumes_is_let_go_for_all_nodes_but_the_useless_and_the_refusing(
    gating: Gating, cluster: Cluster, useless: tuple[str, ...]
) -> None:
    """Nodes that nobody has looked at may have its volume, and kube-scheduler makes room there too."""
    gating.store.snapshot = snapshot_of(EMPTY_B if useless else ONE_HOLE, FULL_A)
    pod = replace(gated(cluster, "train", 3), placement=Placement(volumes=None))
    gating.watch(pod)
    gating.gated_pods.leave_to_scheduler(pod, (NODE_A,), useless)
    assert gates(cluster, "train") == ()
    assert narrowing_of(watched(cluster, "train").node_affinity).excluded == (NODE_B,)
    assert gating.assumed("train") == (NODE_A,)


def test_a_pod_waits_for_a_node_that_has_its_volume(gating: Gating, cluster: Cluster) -> None:
    """Its place is neither taken nor kept on the node that admits it."""
    elsewhere = (NodeSelectorTerm((Requirement(HOSTNAME_LABEL, "In", (NODE_A,)),)),)
    pod = replace(gated(cluster, "train"), placement=Placement(volumes=(elsewhere,)), scheduler_rules=("volumes",))
    gating.store.snapshot = snapshot_of(ONE_HOLE, FULL_A)
    gating.watch(pod)
    assert gating.reconcile(pod).on_capacity
    assert gates(cluster, "train") == (FIT_GATE,)
    assert gating.assumed("train") == ()
    gating.apply(changes.Published(EMPTY_A, "9"))
    gating.reconcile(pod)
    assert gating.assumed("train") == (NODE_A,)


@pytest.mark.parametrize("created", [False, True])
def test_a_pod_is_ungated_once_it_is_known_where_its_claim_is_or_that_nobody_will_say(
    gating: Gating, cluster: Cluster, created: bool
) -> None:
    pod = replace(gated(cluster, "train"), claims=("gated-data",), placement=Placement(volumes=None))
    gating.watch(pod)
    assert gating.reconcile(pod) == Result(RETRY_SECONDS)
    assert gates(cluster, "train") == (FIT_GATE,)
    if created:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "gated-data"}, "spec": spec}
        made = cluster.client.create(CLAIMS, claim, "default")
        assert gating.reconcile(pod) == DONE
        cluster.client.delete(CLAIMS, "gated-data", "default", uid=made["metadata"]["uid"])
    else:
        gating.clock.now += COMING_SECONDS
        assert gating.reconcile(pod) == DONE
    assert gates(cluster, "train") == ()


def test_a_pod_is_not_let_go_for_a_node_that_has_gone(gating: Gating, cluster: Cluster) -> None:
    pod = gated(cluster, "train", 3)
    gating.watch(pod)
    gating.gated_pods.leave_to_scheduler(pod, (NODE_A,), ())
    assert gates(cluster, "train") == (FIT_GATE,)
    assert gating.assumed("train") == ()
