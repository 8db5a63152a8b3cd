"""A pod of higher priority gets its place by one eviction, whoever creates the victim's next pod: a real cluster."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from tests.clusters import COLLECTOR_SECONDS, DEPLOYMENTS, NODE_A, NODE_B, Cluster, pod, priority_class, shown
from tests.controller.conftest import NAMESPACE
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.resources import PODS, Resource
from topomend.wire.group import RELAUNCH_ANNOTATION

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("agents", "steered", "priorities")]

DAEMON_SETS = Resource("apps/v1", "daemonsets")


@pytest.fixture
def priorities(two_nodes: Cluster) -> Iterator[None]:
    """The classes ``low``, -5, and ``high``, 1000."""
    with ExitStack() as stack:
        for name, value in (("low", -5), ("high", 1000)):
            stack.enter_context(priority_class(two_nodes, name, value))
        yield


@pytest.mark.parametrize(("resource", "kind"), [(DAEMON_SETS, "DaemonSet"), (DEPLOYMENTS, "Deployment")])
def test_the_next_pod_of_a_victims_controller_does_not_take_the_place(
    two_nodes: Cluster, operator: Operator, resource: Resource, kind: str
) -> None:
    """One pod of four CPUs fits each node, and nobody gates those of the controller."""
    with ExitStack() as stack:
        first = _controlled(two_nodes, stack, resource, kind, "default", cpus=4, replicas=2)
        two_nodes.create(_urgent(4), NAMESPACE)
        eventually("the urgent pod to run", partial(_runs, two_nodes, "urgent"))
        operator.has_done("preemption", 3)
        assert len(first & _present(two_nodes)) == 1, "one victim"
    assert "Traceback" not in operator.text()


def test_where_totals_suffice_a_gated_victims_next_pod_does_not_take_the_place_either(
    two_nodes: Cluster, operator: Operator
) -> None:
    """Each NUMA node holds a pod of two CPUs, and three are left on each node in total: none on one NUMA node.

    kube-scheduler would bind the urgent pod, and its kubelet refuse it: the operator evicts.
    """
    with ExitStack() as stack:
        first: set[str] = set()
        for node in (NODE_A, NODE_B):
            first |= _controlled(two_nodes, stack, DEPLOYMENTS, "Deployment", NAMESPACE, cpus=2, replicas=2, node=node)
        two_nodes.create(_urgent(3), NAMESPACE)
        eventually("the urgent pod to run", partial(_runs, two_nodes, "urgent"))
        operator.has_done("preemption", 3)
        assert len(first & _present(two_nodes)) == 3, "one victim"
    assert "Traceback" not in operator.text()


def test_two_pods_get_the_room_that_kube_scheduler_makes_for_neither_alone(
    two_nodes: Cluster, operator: Operator
) -> None:
    """Alone, either has it evict one pod, and neither NUMA node is large enough. Kept: seed 20261127, cluster 996."""
    for name, cpus, priority in (("first", 2, "low"), ("second", 2, ""), ("third", 1, "")):
        content = pod(name, cpus, node=NODE_B, annotations={RELAUNCH_ANNOTATION: "false"})
        content["spec"] |= {"priorityClassName": priority, "terminationGracePeriodSeconds": 1}
        two_nodes.create(content)
        eventually("it to be published", lambda: name in shown(two_nodes, NODE_B))  # noqa: B023
    for number, cpus in enumerate((3, 4)):
        content = _urgent(cpus, f"urgent-{number}")
        content["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_B}
        two_nodes.create(content, NAMESPACE)
    for number in range(2):
        eventually("the urgent pods to run", partial(_runs, two_nodes, f"urgent-{number}"))
    assert operator.text().count("kube-scheduler may evict pods of lower priority for it") == 1, "one after the other"
    assert " was evicted from " not in operator.text()


def _controlled(
    cluster: Cluster,
    stack: ExitStack,
    resource: Resource,
    kind: str,
    namespace: str,
    *,
    cpus: int,
    replicas: int,
    node: str = "",
) -> set[str]:
    """A controller of pods of low priority, and the uids of its pods once they run and are published."""
    name = f"low{node}"
    template = {"metadata": {"labels": {"app": name}}, "spec": pod("", cpus)["spec"]}
    template["spec"] |= {"priorityClassName": "low", "terminationGracePeriodSeconds": 1}
    template["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": name}}, "template": template}
    spec |= {"replicas": replicas} if kind == "Deployment" else {}
    head = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name}}
    made = cluster.client.create(resource, head | {"spec": spec}, namespace)

    def wait_for_its_end() -> None:
        eventually("no pod of it to be left", lambda: not _of_it(cluster, namespace, name), COLLECTOR_SECONDS)

    stack.callback(wait_for_its_end)
    stack.callback(cluster.client.delete, resource, name, namespace, uid=made["metadata"]["uid"])
    pods = eventually("its pods to run", lambda: _all_run(cluster, namespace, name, replicas))
    names = {content["metadata"]["name"] for content in pods}
    eventually("the agents to publish them", lambda: names <= shown(cluster, NODE_A) | shown(cluster, NODE_B))
    return {content["metadata"]["uid"] for content in pods}


def _of_it(cluster: Cluster, namespace: str, app: str) -> list[dict[str, Any]]:
    pods = cluster.client.list(PODS, namespace=namespace).items
    return [content for content in pods if content["metadata"].get("labels", {}).get("app") == app]


def _all_run(cluster: Cluster, namespace: str, app: str, count: int) -> list[dict[str, Any]]:
    running = [content for content in _of_it(cluster, namespace, app) if content["status"].get("phase") == "Running"]
    return running if len(running) == count else []


def _present(cluster: Cluster) -> set[str]:
    """The uids of all pods that nobody deletes."""
    return {content["metadata"]["uid"] for content in cluster.pods() if "deletionTimestamp" not in content["metadata"]}


def _urgent(cpus: int, name: str = "urgent") -> dict[str, Any]:
    content = pod(name, cpus)
    content["spec"]["priorityClassName"] = "high"
    return content


def _runs(cluster: Cluster, name: str) -> bool:
    return bool(cluster.get(name, NAMESPACE)["status"].get("phase") == "Running")
