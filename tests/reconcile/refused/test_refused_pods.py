"""When a relaunch may start, and what becomes of one that may not now: on a pod that a real kubelet has refused."""

from dataclasses import replace

import pytest
from tests.builders import node_state
from tests.clusters import NODE_B, Cluster
from tests.reconcile.parts import EMPTY_A, Parts
from tests.refused_pods import refused, watched

from topomend.cache.entries import Refusal
from topomend.decide import plan as plans
from topomend.decide.eligibility import Limits
from topomend.kube.resources import RELAUNCHES
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.relaunch_record import Step
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.refused.refused_pods import RefusedPods
from topomend.reconcile.result import DONE, RETRY_SECONDS, Result
from topomend.relaunch import records as relaunch_records
from topomend.relaunch.narrowed_affinity import narrowing_of
from topomend.runtime.queues.token_bucket import FairTokenBucket
from topomend.wire.group import CREATOR_ANNOTATION
from topomend.wire.relaunch_record import read_relaunch, record_name

pytestmark = pytest.mark.cluster

LIMITS = Limits()
LARGE_B = node_state("numa:2 cores:8 memory:8Gi", name=NODE_B)
"""What numa-b publishes here: each of its NUMA nodes has room for the pod that numa-a refused."""


class Relaunches(Parts):
    """Refused pods of the cluster beside these parts. At most ``burst`` relaunches start at once."""

    def __init__(self, cluster: Cluster, pod: WatchedPod, burst: int = 1) -> None:
        super().__init__(cluster, EMPTY_A, LARGE_B)
        self.pod, self.cluster = pod, cluster
        self.watch(pod)
        self.refused_pods = RefusedPods(self.collaborators, FairTokenBucket(0.1, burst, self.clock))

    def relaunch(self, limits: Limits = LIMITS) -> Result:
        """Reserve nodes and relaunch, as the reconciler does."""
        refusal = Refusal(self.pod, self.pod.version, self.clock.now)
        plan = self.collaborators.reservations.plan(refusal, limits)
        assert isinstance(plan, plans.RelaunchOn)
        assert self.assumed(self.pod.name) == (NODE_B,)
        pod = PodID(self.pod.namespace, self.pod.name, self.pod.uid)
        return self.refused_pods.relaunch(pod, refusal, plan.diagnosis, limits)

    def is_untouched(self) -> bool:
        """Whether the refused pod is as the kubelet left it, and its node is free for others."""
        return watched(self.cluster, self.pod.name) == self.pod and not self.assumed(self.pod.name)


def test_a_refused_pod_is_relaunched_and_its_replacement_assumed(cluster: Cluster) -> None:
    relaunches = Relaunches(cluster, refused(cluster, "train"))
    relaunches.relaunch()
    replacement = watched(cluster, "train")
    assert replacement.replaces == relaunches.pod.uid
    assert narrowing_of(replacement.node_affinity).hosts == (NODE_B,)
    assert relaunches.assumed("train") == (NODE_B,)
    assert "Relaunched" in relaunches.emitted.reasons()


def test_another_look_at_the_old_pod_leaves_its_replacement_of_the_same_name_assumed(cluster: Cluster) -> None:
    """What changed while it was relaunched has it looked at again, before the end of its record is seen."""
    relaunches = Relaunches(cluster, refused(cluster, "train"))
    relaunches.relaunch()
    old = PodID(relaunches.pod.namespace, "train", relaunches.pod.uid)
    relaunches.refused_pods.resume(old, LIMITS.max_attempts)
    assert relaunches.assumed("train") == (NODE_B,)


def test_no_more_relaunches_start_than_the_rate_allows(cluster: Cluster) -> None:
    relaunches = Relaunches(cluster, refused(cluster, "train"), burst=0)
    assert relaunches.relaunch() == Result(10.0)
    assert relaunches.is_untouched()


def test_each_further_relaunch_of_a_pod_waits_longer(cluster: Cluster) -> None:
    relaunches = Relaunches(cluster, replace(refused(cluster, "train"), attempt=3))
    result = relaunches.relaunch()
    assert result.after is not None
    assert 3 <= result.after <= 4  # four seconds, less the jitter
    assert watched(cluster, "train").uid == relaunches.pod.uid
    assert relaunches.assumed("train") == ()


def test_a_pod_whose_creator_lost_the_right_waits_with_the_reason_in_its_record(cluster: Cluster) -> None:
    annotations = {CREATOR_ANNOTATION: "somebody"}
    relaunches = Relaunches(cluster, refused(cluster, "train", annotations=annotations))
    assert (relaunches.relaunch(), relaunches.emitted.reasons()) == (Result(RETRY_SECONDS), ["RelaunchDeferred"])
    assert relaunches.is_untouched()
    name = record_name("train", relaunches.pod.uid)
    record = read_relaunch(cluster.client.get(RELAUNCHES, name, "default"))
    succeeded = record.condition("Succeeded")
    assert succeeded is not None
    assert (record.step, succeeded.reason) == (Step.RECORDED, "CreatorMayNot")


def test_a_pod_too_large_for_a_record_is_not_relaunched(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaunch_records, "MAX_MANIFEST_BYTES", 100)
    relaunches = Relaunches(cluster, refused(cluster, "train"))
    assert relaunches.relaunch() == DONE
    assert relaunches.is_untouched()
    assert relaunches.emitted.reasons() == ["RelaunchSkipped"]


def test_a_pod_that_was_deleted_meanwhile_is_not_relaunched(cluster: Cluster) -> None:
    relaunches = Relaunches(cluster, refused(cluster, "train"))
    cluster.remove(cluster.get("train"))
    assert relaunches.relaunch() == DONE
    assert cluster.pods() == ()
    assert relaunches.assumed("train") == ()


def test_only_a_relaunch_with_a_record_or_a_replacement_is_started(cluster: Cluster) -> None:
    relaunches = Relaunches(cluster, refused(cluster, "train"))
    pod = PodID("default", "train", relaunches.pod.uid)
    assert not relaunches.refused_pods.is_started(pod)
    assert relaunches.refused_pods.resume(pod, LIMITS.max_attempts) == DONE
    assert relaunches.is_untouched()
