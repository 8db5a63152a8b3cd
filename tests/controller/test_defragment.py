"""``kubectl numa defragment`` beside an operator that steers: its moves are carried out by the eviction API."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner
from tests.clusters import (
    COLLECTOR_SECONDS,
    DEPLOYMENTS,
    NODE_A,
    NODE_B,
    Cluster,
    cordon,
    events_of,
    pod,
    shown,
    uncordon,
)
from tests.controller.conftest import NAMESPACE
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.cli.kubectl_numa import numa
from topomend.kube.resources import BUDGETS, NODE_TOPOLOGIES
from topomend.model.bitmask import NUMAMask, mask_of
from topomend.wire.published.node_topology import read_node_topology

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("agents", "steered")]

HALF = {"app": "half"}


def test_once_the_moves_are_carried_out_the_pod_that_fitted_nowhere_runs_and_none_was_refused(
    two_nodes: Cluster, operator: Operator
) -> None:
    """NUMA node 0 of both nodes is full; on NUMA node 1 of each a pod of two CPUs keeps one of four out."""
    for name, node in (("filler-a", NODE_A), ("filler-b", NODE_B)):
        two_nodes.create(pod(name, 3, node=node))
        eventually(f"{name} to be published", partial(is_shown, two_nodes, node, name))
    with replicas_on_both(two_nodes), budget(two_nodes):
        want = two_nodes.create(pod("want", 4), NAMESPACE)
        eventually("it to wait", lambda: events_of(two_nodes, want, "UngateDeferred"))
        answer = eventually("a move to be named", partial(advice, two_nodes))
        [move] = answer["moves"]
        assert move["owner"] == "Deployment/half"
        assert (move["from"]["numaNodes"], move["to"]["numaNodes"], move["orTo"]) == ([1], [1], [])
        [then] = move["thenRun"]
        assert (then["name"], then["node"]) == ("want", move["from"]["node"])
        carry_out(two_nodes, move)
        running = eventually("the pod that fitted nowhere to run", lambda: runs(two_nodes, "want"))
        assert running["spec"]["nodeName"] == then["node"]
        eventually("it to be published", lambda: numa_nodes(two_nodes, then["node"], "want") == 0b10)
        assert [each["metadata"]["name"] for each in steered(two_nodes) if each["status"]["phase"] == "Failed"] == []
        assert "Traceback" not in operator.text()


def is_shown(cluster: Cluster, node: str, name: str) -> bool:
    return name in shown(cluster, node)


def advice(cluster: Cluster) -> dict[str, Any] | None:
    """What the verb says, once it names a move: agents and controllers may be behind."""
    command = ["defragment", "--older-than", "1s", "-o", "json", "--kubeconfig", str(cluster.sandbox.kubeconfig)]
    asked = CliRunner().invoke(numa, command)
    print(asked.output)
    if asked.exit_code:  # where the API server gives no answer in time, there is none of the verb either
        return None
    answer: dict[str, Any] = json.loads(asked.stdout)
    return answer


def carry_out(cluster: Cluster, move: dict[str, Any]) -> None:
    """Evict the pod as told; its next one has to run on the node that was named."""
    name, before = move["pod"]["name"], {each["metadata"]["uid"] for each in halves(cluster)}
    with cordoned(cluster, *move["cordon"]):
        cluster.client.evict(name, NAMESPACE, uid=cluster.get(name, NAMESPACE)["metadata"]["uid"])
        [comes] = eventually(
            "its next pod to run",
            lambda: [
                each
                for each in halves(cluster)
                if each["metadata"]["uid"] not in before and each["status"].get("phase") == "Running"
            ],
        )
    assert comes["spec"]["nodeName"] == move["to"]["node"]
    told = mask_of(move["to"]["numaNodes"])
    where = partial(numa_nodes, cluster, move["to"]["node"], comes["metadata"]["name"])
    eventually("it to be where it was told", lambda: where() == told)


def numa_nodes(cluster: Cluster, node: str, name: str) -> NUMAMask:
    """Where the pod has its CPUs, by what the node's agent publishes; 0 where it has none yet."""
    state = read_node_topology(cluster.client.get(NODE_TOPOLOGIES, node))
    held = [each for each in state.pods if each.name == name]
    cpus = sum(container.cpus for each in held for container in each.containers)
    return mask_of(number for number, local in state.machine.cpus_of_numa_node.items() if local & cpus)


@contextmanager
def replicas_on_both(cluster: Cluster) -> Iterator[None]:
    """A Deployment of two replicas, each of which was created while the other node was cordoned."""
    template = {"metadata": {"labels": HALF}, "spec": pod("", 2)["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": HALF}, "template": template}
    content = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "half"}, "spec": spec}
    with cordoned(cluster, NODE_B):
        made = cluster.client.create(DEPLOYMENTS, content, NAMESPACE)
        eventually("the first to run", lambda: nodes_of_halves(cluster) == {NODE_A})
    try:
        with cordoned(cluster, NODE_A):
            cluster.client.merge(DEPLOYMENTS, "half", {"spec": {"replicas": 2}}, NAMESPACE)
            eventually("the second to run", lambda: nodes_of_halves(cluster) == {NODE_A, NODE_B})
        yield
    finally:
        cluster.client.delete(DEPLOYMENTS, "half", NAMESPACE, uid=made["metadata"]["uid"])
        eventually("no replica to be left", lambda: not halves(cluster), COLLECTOR_SECONDS)


@contextmanager
def budget(cluster: Cluster) -> Iterator[None]:
    """One of the two may leave at a time."""
    head = {"apiVersion": BUDGETS.api_version, "kind": "PodDisruptionBudget", "metadata": {"name": "half"}}
    made = cluster.client.create(
        BUDGETS, head | {"spec": {"minAvailable": 1, "selector": {"matchLabels": HALF}}}, NAMESPACE
    )
    try:
        yield
    finally:
        cluster.client.delete(BUDGETS, "half", NAMESPACE, uid=made["metadata"]["uid"])


@contextmanager
def cordoned(cluster: Cluster, *names: str) -> Iterator[None]:
    cordon(cluster, *names)
    try:
        yield
    finally:
        uncordon(cluster, *names)


def steered(cluster: Cluster) -> list[dict[str, Any]]:
    return [content for content in cluster.pods() if content["metadata"]["namespace"] == NAMESPACE]


def halves(cluster: Cluster) -> list[dict[str, Any]]:
    return [content for content in steered(cluster) if content["metadata"].get("labels", {}).get("app") == "half"]


def nodes_of_halves(cluster: Cluster) -> set[str]:
    return {each["spec"]["nodeName"] for each in halves(cluster) if each["status"].get("phase") == "Running"}


def runs(cluster: Cluster, name: str) -> dict[str, Any] | None:
    content = cluster.get(name, NAMESPACE)
    return content if content["status"].get("phase") == "Running" else None
