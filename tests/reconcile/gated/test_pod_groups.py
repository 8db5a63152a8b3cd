"""Kubernetes' own groups on an API server that has them: PodGroup, and CompositePodGroup, which is alpha."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.clusters import NODE_B, Cluster, pod
from tests.reconcile.gated.test_gangs import Groups
from tests.refused_pods import gates

from topomend.kube.client import connect
from topomend.kube.resources import Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.gangs import COUNTED_SECONDS
from topomend.reconcile.result import DONE
from topomend.sandbox.cluster import Sandbox
from topomend.sandbox.node.node_spec import NodeSpec
from topomend.wire.group import FIT_GATE
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = pytest.mark.cluster

POD_GROUPS = Resource("scheduling.k8s.io/v1beta1", "podgroups")
COMPOSITE_POD_GROUPS = Resource("scheduling.k8s.io/v1alpha3", "compositepodgroups")

FLAGS = (
    "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
    "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
)


@pytest.fixture(scope="module")
def groups_served() -> Iterator[Cluster]:
    with Sandbox.up([NodeSpec.of_shape(NODE_B, "numa:2 cores:4")], api_server_flags=FLAGS) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        yield Cluster(sandbox, client, {})
        client.close()


def _pod_group(cluster: Cluster, name: str, least: int, composite: str = "") -> None:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": least}}}
    if composite:
        spec |= {"parentCompositePodGroupName": composite, "workloadRef": _template(name)}
    content = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    made = cluster.client.create(POD_GROUPS, content, "default")
    assert made["spec"].get("parentCompositePodGroupName", "") == composite  # the feature is on


def _template(name: str) -> dict[str, str]:
    return {"workloadName": "train", "templateName": name}


def _member(groups: Groups, name: str, group: str) -> WatchedPod:
    content = pod(name, 2)
    content["spec"] |= {"schedulingGates": [{"name": FIT_GATE}], "schedulingGroup": {"podGroupName": group}}
    member = read_watched_pod(groups.cluster.create(content))
    groups.watch(member)
    return member


def test_a_pod_group_waits_for_its_pods_and_goes_together(groups_served: Cluster) -> None:
    groups = Groups(groups_served)
    _pod_group(groups_served, "alone", 2)
    first = _member(groups, "alone-0", "alone")
    assert groups.reconcile(first).after == COUNTED_SECONDS
    second = _member(groups, "alone-1", "alone")
    assert groups.reconcile(second) == DONE
    assert [gates(groups_served, pod.name) for pod in (first, second)] == [(), ()]
    assert groups.emitted.reasons() == ["WaitingForGroup", "Ungated", "Ungated"]


def test_a_pod_group_of_a_composite_pod_group_goes_by_itself_and_says_so(groups_served: Cluster) -> None:
    groups = Groups(groups_served)
    composite = {
        "apiVersion": COMPOSITE_POD_GROUPS.api_version,
        "kind": "CompositePodGroup",
        "metadata": {"name": "train"},
        "spec": {"workloadRef": _template("all"), "schedulingPolicy": {"gang": {"minGroupCount": 2}}},
    }
    groups_served.client.create(COMPOSITE_POD_GROUPS, composite, "default")
    _pod_group(groups_served, "workers", 1, "train")
    worker = _member(groups, "worker-0", "workers")
    assert groups.reconcile(worker) == DONE
    assert gates(groups_served, "worker-0") == ()
    assert groups.emitted.reasons() == ["CompositePodGroupIgnored", "Ungated"]
    assert "does not wait for the other groups of CompositePodGroup train" in groups.emitted.events[0][4]
