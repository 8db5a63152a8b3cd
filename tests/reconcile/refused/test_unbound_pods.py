"""Which unbound pods are deleted or relaunched, on a real API server: only where another would have more nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.clusters import NODE_A, NODE_B, Cluster, pod
from tests.reconcile.parts import EMPTY_A, EMPTY_B, Parts
from tests.refused_pods import watched
from tests.unbound_pods import NOWHERE, narrowed, unbound
from tests.volumes import local_volume
from tests.waiting import eventually

from topomend.cache import changes
from topomend.decide.eligibility import Limits
from topomend.kube.resources import RELAUNCHES, Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Step
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.pod_id import PodID, WorkloadID
from topomend.reconcile.refused.refused_pods import RefusedPods
from topomend.reconcile.refused.unbound_pods import (
    CHECK_SECONDS,
    ELSEWHERE_SECONDS,
    JOB_SECONDS,
    PATIENCE_SECONDS,
    UnboundPods,
)
from topomend.reconcile.result import DONE, RETRY_SECONDS, Result
from topomend.relaunch.narrowed_affinity import narrowing_of
from topomend.runtime.backoff import Backoff
from topomend.runtime.queues.token_bucket import FairTokenBucket
from topomend.wire.group import ATTEMPT_ANNOTATION, CREATOR_ANNOTATION, FIT_GATE
from topomend.wire.relaunch_record import read_relaunch, record_name

pytestmark = pytest.mark.cluster

JOBS = Resource("batch/v1", "jobs")
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
        yield narrowed(two_nodes, gated)
    finally:
        two_nodes.client.delete(REPLICA_SETS, made["name"], "default", uid=made["uid"])
        two_nodes.clear()


def _pods(cluster: Cluster) -> list[dict[str, Any]]:
    return [content for content in cluster.pods() if LABELS.items() <= content["metadata"].get("labels", {}).items()]


class Scene(Parts):
    """The parts around one unbound pod; ``nodes`` is whether other nodes admit it."""

    def __init__(self, cluster: Cluster, unbound: WatchedPod, *, nodes: bool = True, opted_out: str = "") -> None:
        super().__init__(cluster, *((EMPTY_A, EMPTY_B) if nodes else ()))
        self.pod, self.began = unbound, self.clock.now
        self.backoff = Backoff(self.clock)
        self.watch(unbound)
        self.limits = Limits(opted_out, max_attempts=1)
        refused_pods = RefusedPods(self.collaborators, FairTokenBucket(10.0, 10, self.clock))
        self.pods = UnboundPods(
            cluster.client,
            self.store,
            NamespaceLimits(cluster.client, self.limits),
            refused_pods,
            self.collaborators.volumes,
            backoff=self.backoff,
            clock=self.clock,
        )

    def check_after(self, seconds: float) -> None:
        self.clock.now = self.began + seconds
        self.pods.check()

    def reconcile_after(self, seconds: float) -> Result:
        self.clock.now = self.began + seconds
        unbound = self.pods.bare(PodID(self.pod.namespace, self.pod.name, self.pod.uid))
        assert unbound
        return self.pods.reconcile(unbound)


def test_a_replica_that_other_nodes_admit_is_deleted_and_the_next_one_goes_to_all_of_them(
    two_nodes: Cluster, replica: WatchedPod
) -> None:
    scene = Scene(two_nodes, replica)
    scene.check_after(PATIENCE_SECONDS - CHECK_SECONDS)
    assert [content["metadata"]["uid"] for content in _pods(two_nodes)] == [replica.uid]
    assert scene.pods.widened(replica) is replica
    scene.check_after(PATIENCE_SECONDS + 1)
    eventually("its controller's next pod", lambda: replica.uid not in _uids(two_nodes) and _uids(two_nodes))
    assert scene.pods.widened(replica).scheduler_rules
    assert scene.backoff.remaining(WorkloadID.of(replica)) > 0


@pytest.mark.parametrize(
    "fields", [{"nodes": False}, {"opted_out": "the operator runs with --mode observe"}], ids=["no node", "opted out"]
)
def test_a_replica_is_kept_if_no_other_node_admits_it_or_refusals_are_only_explained(
    fields: dict[str, Any], two_nodes: Cluster, replica: WatchedPod
) -> None:
    Scene(two_nodes, replica, **fields).check_after(PATIENCE_SECONDS + 1)
    assert _uids(two_nodes) == {replica.uid}


def test_a_replica_is_kept_if_the_nodes_that_admit_it_do_not_have_its_volume(
    two_nodes: Cluster, replica: WatchedPod
) -> None:
    with local_volume(two_nodes, "disk", "elsewhere"):
        scene = Scene(two_nodes, replace(replica, claims=("disk",)))
        scene.check_after(PATIENCE_SECONDS + 1)
        assert _uids(two_nodes) == {replica.uid}
    with local_volume(two_nodes, "disk", NODE_A):
        scene.check_after(PATIENCE_SECONDS + ELSEWHERE_SECONDS)
        assert _uids(two_nodes) == {replica.uid}, "it was asked about within a minute"
        scene.check_after(PATIENCE_SECONDS + 1 + ELSEWHERE_SECONDS)
        eventually("it to be deleted", lambda: replica.uid not in _uids(two_nodes))


@contextmanager
def job(cluster: Cluster, backoff_limit: int) -> Iterator[str]:
    """The name of a Job of one pod behind the fit gate."""
    spec = {**pod("", 1)["spec"], "schedulingGates": [{"name": FIT_GATE}], "restartPolicy": "Never"}
    content = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "unbound-"},
        "spec": {"backoffLimit": backoff_limit, "template": {"metadata": {"labels": LABELS}, "spec": spec}},
    }
    made = cluster.client.create(JOBS, content, "default")["metadata"]
    try:
        yield made["name"]
    finally:
        cluster.client.delete(JOBS, made["name"], "default", uid=made["uid"])
        cluster.clear()


def _next_pod(cluster: Cluster, *before: WatchedPod) -> WatchedPod:
    """The Job's pod after these, as the operator leaves it for a node that no scheduler knows."""
    known = {pod.uid for pod in before}
    gated = eventually(
        "its next pod", lambda: [content for content in _pods(cluster) if content["metadata"]["uid"] not in known]
    )
    return narrowed(cluster, gated[0])


def test_a_jobs_pod_is_deleted_later_and_one_at_a_time_as_the_job_counts_a_failure(two_nodes: Cluster) -> None:
    with job(two_nodes, backoff_limit=2) as name:
        first = _next_pod(two_nodes)
        scene = Scene(two_nodes, first)
        scene.check_after(JOB_SECONDS - CHECK_SECONDS)
        assert _uids(two_nodes) == {first.uid}
        scene.check_after(JOB_SECONDS + 1)
        assert scene.pods.widened(first).scheduler_rules
        second = _next_pod(two_nodes, first)
        assert two_nodes.client.get(JOBS, name, "default")["status"]["failed"] == 1
        scene.apply(changes.PodRemoved(first.namespace, first.name, first.uid, scene.clock.now))
        scene.watch(second)
        scene.pods._due[second.uid] = 0.0  # as if it had waited long enough
        scene.check_after(2 * JOB_SECONDS - CHECK_SECONDS)
        assert second.uid in _uids(two_nodes)
        scene.check_after(2 * JOB_SECONDS + 2)
        eventually("it to be deleted", lambda: second.uid not in _uids(two_nodes))


def test_a_jobs_pod_is_kept_where_the_job_would_fail(two_nodes: Cluster) -> None:
    with job(two_nodes, backoff_limit=0):
        pod = _next_pod(two_nodes)
        Scene(two_nodes, pod).check_after(JOB_SECONDS + 1)
        assert _uids(two_nodes) == {pod.uid}


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    yield two_nodes
    two_nodes.clear()


def test_a_bare_pod_that_other_nodes_admit_is_relaunched_for_all_of_them(cluster: Cluster) -> None:
    pod = unbound(cluster, "train")
    scene = Scene(cluster, pod)
    scene.check_after(PATIENCE_SECONDS + 1)
    assert watched(cluster, "train").uid == pod.uid, "only pods of controllers are merely deleted"
    assert scene.reconcile_after(PATIENCE_SECONDS - CHECK_SECONDS) == Result(CHECK_SECONDS)
    assert scene.reconcile_after(PATIENCE_SECONDS) == DONE
    replacement = watched(cluster, "train")
    assert (replacement.replaces, replacement.gates) == (pod.uid, ())
    assert set(narrowing_of(replacement.node_affinity).hosts) == {NODE_A, NODE_B}
    eventually("the replacement to run", lambda: cluster.running("train"))
    record = read_relaunch(cluster.client.get(RELAUNCHES, record_name("train", pod.uid), "default"))
    assert (record.step, record.new_uid, record.is_open) == (Step.LAUNCHED, replacement.uid, False)
    assert (record.refused_by, record.reason, record.attempt) == ("scheduler", "Unschedulable", 1)
    assert record.message.endswith(NOWHERE)
    assert scene.emitted.reasons() == ["Relaunched", "Relaunched"]


def test_a_bare_pod_is_relaunched_as_often_as_it_is_unbound_each_time_after_a_longer_wait(cluster: Cluster) -> None:
    pod = unbound(cluster, "train", annotations={ATTEMPT_ANNOTATION: "1"})
    scene = Scene(cluster, pod)
    for number in range(10):
        scene.backoff.failed(WorkloadID.of(pod), f"an earlier pod of this name, number {number}")
    later = scene.reconcile_after(2 * PATIENCE_SECONDS).after
    assert later
    assert later == scene.backoff.remaining(WorkloadID.of(pod))
    assert later > PATIENCE_SECONDS
    assert watched(cluster, "train").uid == pod.uid
    scene.reconcile_after(2 * PATIENCE_SECONDS + later)
    replacement = watched(cluster, "train")
    assert (replacement.replaces, replacement.attempt) == (pod.uid, 1), "what no kubelet refused counts as no attempt"


@pytest.mark.parametrize(
    "fields",
    [{"nodes": False}, {"opted_out": "the operator runs with --mode observe"}],
    ids=["no node", "opted out"],
)
def test_a_bare_pod_is_kept_if_no_other_node_admits_it_or_refusals_are_only_explained(
    fields: dict[str, Any], cluster: Cluster
) -> None:
    pod = unbound(cluster, "train")
    Scene(cluster, pod, **fields).reconcile_after(PATIENCE_SECONDS)
    assert (watched(cluster, "train"), cluster.records()) == (pod, ())


@pytest.mark.parametrize(
    "fields",
    [{"generation": 3}, {"finalizers": ("other.io/finalizer",)}, {"relaunch": "false"}],
    ids=["changed", "another's finalizer", "opted out"],
)
def test_a_bare_pod_is_kept_if_a_refused_one_would_be(fields: dict[str, Any], cluster: Cluster) -> None:
    pod = unbound(cluster, "train")
    assert Scene(cluster, replace(pod, **fields)).reconcile_after(PATIENCE_SECONDS) == DONE
    assert (watched(cluster, "train"), cluster.records()) == (pod, ())


def test_a_bare_pod_whose_creator_lost_the_right_waits_with_the_reason_in_its_record(cluster: Cluster) -> None:
    pod = unbound(cluster, "train", annotations={CREATOR_ANNOTATION: "somebody"})
    scene = Scene(cluster, pod)
    assert scene.reconcile_after(PATIENCE_SECONDS) == Result(RETRY_SECONDS)
    assert (watched(cluster, "train"), scene.emitted.reasons()) == (pod, ["RelaunchDeferred"])
    record = read_relaunch(cluster.client.get(RELAUNCHES, record_name("train", pod.uid), "default"))
    succeeded = record.condition("Succeeded")
    assert succeeded
    assert (record.step, succeeded.reason) == (Step.RECORDED, "CreatorMayNot")


def _uids(cluster: Cluster) -> set[str]:
    return {
        content["metadata"]["uid"] for content in _pods(cluster) if not content["metadata"].get("deletionTimestamp")
    }
