"""What is done about a refused pod: it is relaunched, deleted or left alone, and explained before that."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.builders import applied, node_state, snapshot_of
from tests.clusters import COLLECTOR_SECONDS, NODE_A, NODE_B, Cluster, pod
from tests.reconcile.emitted import Emitted
from tests.reconcile.parts import EMPTY_A
from tests.refused_pods import TOO_MANY, gated, refused, watched
from tests.waiting import eventually

from topomend.cache import changes
from topomend.kube.errors import NotFound
from topomend.kube.resources import RELAUNCHES, Resource
from topomend.model.narrowing import Narrowing
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.reconciler import Reconciler
from topomend.reconcile.result import DONE, Result
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests
from topomend.relaunch.narrowed_affinity import narrowing_of
from topomend.wire.group import RELAUNCH_ANNOTATION
from topomend.wire.relaunch_record import record_name

pytestmark = pytest.mark.cluster

REPLICA_SETS = Resource("apps/v1", "replicasets")
LABELS = {"app": "reconciled"}

LARGE = "numa:2 cores:8 memory:8Gi"
"""As which a node is published whose kubelet has less, so that replay admits the pods that it refuses."""

LARGE_A, LARGE_B = node_state(LARGE, name=NODE_A), node_state(LARGE, name=NODE_B)


class Operator:
    """A reconciler of the cluster's pods, on a snapshot of these nodes and this pod."""

    def __init__(self, cluster: Cluster, pod: WatchedPod, *states: NodeState) -> None:
        self.emitted, self.pod, self.store = Emitted(), pod, Store()
        store = self.store
        store.snapshot = applied(changes.PodUpdated(pod, time.monotonic()), to=snapshot_of(*states))
        metrics = Metrics(lambda: store.snapshot, lambda: 0, lambda: True)
        settings = Settings(namespace="nowhere")
        announcer, reported = self.emitted.announcer, list[changes.Change]()
        self._reconciler = Reconciler(
            cluster.client, store, announcer, settings, reported.append, metrics=metrics, why_not_gating=lambda: ""
        )

    def reconcile(self) -> Result:
        return self._reconciler.reconcile(PodID(self.pod.namespace, self.pod.name, self.pod.uid))

    def assumed(self) -> tuple[str, ...]:
        """The nodes on which a pod of this name is assumed."""
        assumed = self.store.snapshot.assumed.get((self.pod.namespace, self.pod.name))
        return assumed.nodes if assumed else ()

    def reasons(self) -> list[str]:
        """Why each Event was emitted. Nobody has installed the brake's policy."""
        return [reason for reason in self.emitted.reasons() if reason != "StormNotBraked"]


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    yield two_nodes
    two_nodes.remove_all()


@pytest.fixture
def owned(cluster: Cluster) -> Iterator[WatchedPod]:
    """A refused pod of a ReplicaSet. The pods that this creates itself fit no node."""
    spec = {**pod("", 1)["spec"], "nodeSelector": {"no": "such-node"}}
    content = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": "ReplicaSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
        },
    }
    uid = cluster.client.create(REPLICA_SETS, content, "default")["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
    yield refused(cluster, "web-1", labels=LABELS, ownerReferences=[owner])
    cluster.client.delete(REPLICA_SETS, "web", "default", uid=uid)
    eventually("its pods to be collected", lambda: not cluster.pods(), COLLECTOR_SECONDS)


def exists(cluster: Cluster, name: str) -> bool:
    with suppress(NotFound):
        return bool(cluster.get(name))
    return False


def test_a_bare_pod_is_explained_and_relaunched(cluster: Cluster) -> None:
    operator = Operator(cluster, refused(cluster, "train"), EMPTY_A, LARGE_B)
    operator.reconcile()
    assert watched(cluster, "train").replaces == operator.pod.uid
    assert set(operator.reasons()) == {"Relaunched", "TopologyRefusalExplained"}


def test_a_gated_pod_that_opted_out_is_ungated_at_once_for_any_node(cluster: Cluster) -> None:
    operator = Operator(cluster, gated(cluster, "train", TOO_MANY, annotations={RELAUNCH_ANNOTATION: "false"}), EMPTY_A)
    assert operator.reconcile() == DONE
    assert watched(cluster, "train").gates == ()
    assert not narrowing_of(watched(cluster, "train").node_affinity)
    assert operator.reasons() == ["Ungated"]
    assert operator.emitted.notes("Ungated") == ['topomend.io/relaunch is "false"; ungated for any node']


def test_a_gated_pod_with_a_value_that_is_none_is_let_go_and_told_so(cluster: Cluster) -> None:
    pod = gated(cluster, "train", 2, "example.com/quota", annotations={RELAUNCH_ANNOTATION: "off"})
    operator = Operator(cluster, pod, EMPTY_A)
    operator.reconcile()
    assert watched(cluster, "train").gates == ("example.com/quota",)
    (note,) = operator.emitted.notes("RelaunchValueWrong")
    assert 'is \'off\', neither "true" nor "false"' in note


def test_a_pod_that_no_node_admits_waits_with_the_reason_in_its_record(cluster: Cluster) -> None:
    operator = Operator(cluster, refused(cluster, "train"), EMPTY_A)
    assert operator.reconcile().on_change
    assert watched(cluster, "train") == operator.pod
    assert cluster.client.get(RELAUNCHES, record_name("train", operator.pod.uid), "default")
    assert operator.reasons() == ["TopologyRefusalExplained", "NoNodeCanEverAdmit"]
    ((explained,), (never,)) = map(operator.emitted.notes, operator.reasons())
    assert "no other node" not in explained, "the second event says what becomes of the pod"
    cause = f"{NODE_A} refuses container main: cpu requests"
    assert (cause in explained, cause in never) == (True, False), "one event for one fact"


def test_a_refused_pod_whose_annotation_is_wrong_is_told_so_once(cluster: Cluster) -> None:
    pod = refused(cluster, "train", annotations={RELAUNCH_ANNOTATION: "no"})
    operator = Operator(cluster, pod, EMPTY_A)
    operator.reconcile()
    assert operator.reasons() == ["RelaunchValueWrong", "TopologyRefusalExplained"]


def test_the_failed_pod_of_a_controller_is_explained_and_then_deleted(owned: WatchedPod, cluster: Cluster) -> None:
    operator = Operator(cluster, owned, EMPTY_A)
    assert operator.reconcile() == DONE
    assert not exists(cluster, "web-1")
    assert operator.reasons() == ["TopologyRefusalExplained", "TopologyRefusalExplained", "RelaunchSkipped"]


def test_a_failed_pod_is_not_deleted_before_it_can_be_explained(owned: WatchedPod, cluster: Cluster) -> None:
    operator = Operator(cluster, owned, LARGE_A)
    result = operator.reconcile()
    assert result.on_any_change
    assert result.after
    assert exists(cluster, "web-1")
    assert operator.reasons() == []


def test_the_failed_pod_of_a_controller_that_creates_no_other_is_kept(owned: WatchedPod, cluster: Cluster) -> None:
    cluster.client.merge(REPLICA_SETS, "web", {"spec": {"replicas": 0}}, "default")
    operator = Operator(cluster, owned, EMPTY_A)
    assert operator.reconcile() == DONE
    assert exists(cluster, "web-1")
    assert operator.emitted.events[-1][-1] == "ReplicaSet web wants no pods; the failed pod was kept"


def test_a_pod_that_the_operator_narrowed_itself_may_go_to_other_nodes(cluster: Cluster) -> None:
    gated_pod = gated(cluster, "train", TOO_MANY)
    assert pod_requests.ungate(cluster.client, gated_pod, Narrowing((NODE_A,)))
    eventually("the pod to be refused", lambda: cluster.phase("train") == "Failed")
    Operator(cluster, watched(cluster, "train"), EMPTY_A, LARGE_B).reconcile()
    replacement = watched(cluster, "train")
    assert replacement.uid != gated_pod.uid
    assert narrowing_of(replacement.node_affinity).hosts == (NODE_B,)


def test_a_pod_that_is_neither_refused_nor_gated_is_done(cluster: Cluster) -> None:
    operator = Operator(cluster, gated(cluster, "train"), EMPTY_A)
    operator.pod = refused(cluster, "other")
    assert operator.reconcile() == DONE
    assert operator.reasons() == []
