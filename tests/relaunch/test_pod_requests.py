"""Writes about single pods hold for the pod that they were decided on, on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.clusters import NODE_B, Cluster
from tests.refused_pods import gated, gates, refused, watched
from tests.waiting import eventually

from topomend.kube.resources import PODS
from topomend.model.narrowing import Narrowing
from topomend.relaunch import pod_requests
from topomend.relaunch.narrowed_affinity import narrowing_of

pytestmark = pytest.mark.cluster

CHANGED: dict[str, Any] = {"metadata": {"labels": {"changed": "true"}}}


@pytest.fixture
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    yield two_nodes
    two_nodes.remove_all()


def test_a_pod_is_read_where_there_is_one(cluster: Cluster) -> None:
    waiting = gated(cluster, "waiting")
    pod = pod_requests.read(cluster.client, "default", "waiting")
    assert pod is not None
    assert pod.uid == waiting.uid
    assert pod_requests.read(cluster.client, "default", "gone") is None


def test_a_pod_that_is_ungated_is_narrowed_in_the_same_request_and_keeps_other_gates(cluster: Cluster) -> None:
    waiting = gated(cluster, "waiting", 2, "example.com/quota")
    assert pod_requests.ungate(cluster.client, waiting, Narrowing((NODE_B,)))
    ungated = watched(cluster, "waiting")
    assert ungated.gates == ("example.com/quota",)
    assert narrowing_of(ungated.node_affinity).hosts == (NODE_B,)
    assert ungated.released


def test_a_pod_that_has_changed_is_not_ungated(cluster: Cluster) -> None:
    waiting = gated(cluster, "waiting")
    cluster.client.merge(PODS, "waiting", CHANGED, "default")
    assert not pod_requests.ungate(cluster.client, waiting, Narrowing((NODE_B,)))
    assert gates(cluster, "waiting") == waiting.gates


def test_another_pod_of_the_name_is_neither_ungated_nor_deleted(cluster: Cluster) -> None:
    earlier = gated(cluster, "waiting")
    cluster.remove(cluster.get("waiting"))
    another = gated(cluster, "waiting")
    assert not pod_requests.ungate(cluster.client, earlier, Narrowing((NODE_B,)))
    assert not pod_requests.clear(cluster.client, earlier)
    assert gates(cluster, "waiting") == another.gates


def test_a_pod_that_is_gone_is_not_ungated(cluster: Cluster) -> None:
    waiting = gated(cluster, "waiting")
    cluster.remove(cluster.get("waiting"))
    assert not pod_requests.ungate(cluster.client, waiting, Narrowing((NODE_B,)))


def test_a_failed_pod_is_deleted_unless_it_has_changed(cluster: Cluster) -> None:
    failed = refused(cluster, "failed")
    cluster.client.merge(PODS, "failed", CHANGED, "default")
    assert not pod_requests.clear(cluster.client, failed)
    assert watched(cluster, "failed").uid == failed.uid
    # Its kubelet may still write the status of a pod that it has just refused.
    eventually("it to be deleted", lambda: pod_requests.clear(cluster.client, watched(cluster, "failed")))
    assert pod_requests.read(cluster.client, "default", "failed") is None
    assert pod_requests.clear(cluster.client, failed), "one that is already gone is deleted"
