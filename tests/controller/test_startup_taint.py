"""A new node gets no pods before its topology is known: the operator takes its startup taint off, and nothing else.

The operator runs under its own account, with the component that gives it the right; kubelets, scheduler and agents are
real.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deploy.manifests import DEPLOY
from tests.audit_log import audited
from tests.builders import applied, node, node_state, snapshot_of
from tests.clusters import NODE_A, NODE_B, Cluster, pod, start_agent
from tests.intercepted import Intercepted
from tests.operator_account import operator_account
from tests.operator_process import Operator, metrics_flag
from tests.processes import end
from tests.waiting import eventually

from topomend.cache.changes import NodeUpdated
from topomend.kube.errors import NotFound, ServerFailed
from topomend.kube.resources import NODE_TOPOLOGIES, NODES
from topomend.model.nodes.node import Taint
from topomend.reconcile.nodes.startup_taint import StartupTaint
from topomend.reconcile.store import Store
from topomend.runtime.manifests import documents
from topomend.wire.group import STARTUP_TAINTS
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

COMPONENT = [
    item
    for name in ("role.yaml", "policy.yaml")
    for item in documents((DEPLOY / "components" / "startup-taint" / name).read_text())
]
DUTY = "startup-taints"
OTHER = {"key": "example.com/dedicated", "value": "gpu", "effect": "NoSchedule"}


@pytest.fixture
def new_node(two_nodes: Cluster) -> Iterator[Cluster]:
    """numa-b as it joins: without a published topology. It is as it was afterwards."""
    yield two_nodes
    two_nodes.client.merge(NODES, NODE_B, {"spec": {"taints": None}})
    two_nodes.remove_all()
    forget_topology(two_nodes)


def forget_topology(cluster: Cluster) -> None:
    try:
        uid = cluster.client.get(NODE_TOPOLOGIES, NODE_B)["metadata"]["uid"]
    except NotFound:
        return
    cluster.client.delete(NODE_TOPOLOGIES, NODE_B, uid=uid)


def taint(cluster: Cluster, *taints: dict[str, Any]) -> None:
    cluster.client.merge(NODES, NODE_B, {"spec": {"taints": list(taints)}})


def taints(cluster: Cluster) -> list[dict[str, Any]]:
    """Those that a test has written: Kubernetes taints a node too whose kubelet stands still."""
    content: list[dict[str, Any]] = cluster.client.get(NODES, NODE_B)["spec"].get("taints", [])
    return [one for one in content if not one["key"].startswith("node.kubernetes.io/")]


def is_unschedulable(cluster: Cluster, name: str) -> bool:
    """Whether the scheduler has tried the pod in vain."""
    return read_watched_pod(cluster.get(name)).unschedulable


def denials(cluster: Cluster) -> list[dict[str, Any]]:
    """The changes of numa-b that somebody was denied."""
    assert cluster.sandbox.audit_log
    return [
        event
        for event in audited(cluster.sandbox.audit_log)
        if event.get("objectRef", {}).get("name") == NODE_B
        and (event["verb"], event["responseStatus"]["code"]) == ("patch", 403)
    ]


def waiting_pod(name: str) -> dict[str, Any]:
    """A pod for numa-b alone, which tolerates the other taint."""
    content = pod(name, 1)
    content["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_B}
    content["spec"]["tolerations"] = [{"key": OTHER["key"], "operator": "Exists"}]
    return content


@pytest.mark.parametrize("key", STARTUP_TAINTS)
def test_a_new_node_gets_its_first_pod_once_its_topology_is_known(
    new_node: Cluster, tmp_path: Path, start_operator: Callable[..., Operator], key: str
) -> None:
    forget_topology(new_node)
    ours = {"key": key, "effect": "NoSchedule"}
    taint(new_node, ours, OTHER)
    with operator_account(new_node, tmp_path, COMPONENT) as kubeconfig:
        operator = start_operator("--startup-taint", metrics_flag(), kubeconfig=kubeconfig)
        operator.wait_until_it_watches()
        made = new_node.create(waiting_pod("first"))
        operator.has_done(DUTY)
        eventually("the scheduler to find no node", lambda: is_unschedulable(new_node, "first"))
        assert {taint["key"] for taint in taints(new_node)} == {key, OTHER["key"]}
        assert "nodeName" not in new_node.get("first")["spec"]
        agent = start_agent(new_node, NODE_B)
        try:
            running = eventually("the pod to run", lambda: new_node.running("first"))
        finally:
            end(agent)
        assert running["metadata"]["uid"] == made["metadata"]["uid"]
        assert taints(new_node) == [OTHER]
        said = f"took the startup taint off {NODE_B}: its topology is known"
        eventually("the operator to say so", lambda: said in operator.text())
        assert "Traceback" not in operator.text()


def test_without_the_flag_and_without_the_right_the_taint_stays(
    new_node: Cluster, tmp_path: Path, start_operator: Callable[..., Operator]
) -> None:
    ours = {"key": STARTUP_TAINTS[0], "effect": "NoSchedule"}
    taint(new_node, ours)
    agent = start_agent(new_node, NODE_B)
    try:
        eventually("its topology", lambda: new_node.client.get(NODE_TOPOLOGIES, NODE_B).get("status"))
        with operator_account(new_node, tmp_path) as kubeconfig:
            without_flag = start_operator(metrics_flag())
            without_flag.wait_until_it_watches()
            before = len(denials(new_node))
            without_right = start_operator("--startup-taint", metrics_flag(), kubeconfig=kubeconfig)
            lack = "install the component startup-taint"
            eventually("the lack to be told", lambda: lack in without_right.text())
            for operator in (without_flag, without_right):
                operator.has_done(DUTY, 3)
            assert without_right.text().count(lack) == 1
            assert len(denials(new_node)) == before + 1, "it rests"
            assert [taint["key"] for taint in taints(new_node)] == [STARTUP_TAINTS[0]]
    finally:
        end(agent)


def published_by(cluster: Cluster, owner: str) -> StartupTaint:
    """numa-b tainted, its publication owned by the node ``owner``, which exists: the garbage collector leaves it."""
    taint(cluster, {"key": STARTUP_TAINTS[0], "effect": "NoSchedule"})
    cluster.publish(node_state("numa:2 cores:4", name=NODE_B))
    uid = cluster.client.get(NODES, owner)["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "Node", "name": owner, "uid": uid}
    cluster.client.merge(NODE_TOPOLOGIES, NODE_B, {"metadata": {"ownerReferences": [reference]}})
    store = Store()
    tainted = node(NODE_B, taints=(Taint(STARTUP_TAINTS[0], "", "NoSchedule"),))
    store.snapshot = applied(NodeUpdated(tainted), to=snapshot_of(cluster.states[NODE_B]))
    return StartupTaint(cluster.client, store, enabled=True)


def test_a_node_that_was_created_again_keeps_its_taint_until_its_own_agent_publishes(new_node: Cluster) -> None:
    published_by(new_node, NODE_A).remove()  # no other uid than numa-b's counts
    assert [one["key"] for one in taints(new_node)] == [STARTUP_TAINTS[0]]
    published_by(new_node, NODE_B).remove()
    assert taints(new_node) == []


def test_a_node_about_which_the_api_server_fails_keeps_its_taint_alone(new_node: Cluster) -> None:
    ours = published_by(new_node, NODE_B)
    failing = Taint(STARTUP_TAINTS[0], "", "NoSchedule")
    other = applied(NodeUpdated(node("a", taints=(failing,))), to=snapshot_of(node_state(name="a")))
    snapshot = ours._store.snapshot
    ours._store.snapshot = replace(
        snapshot,
        nodes={**other.nodes, **snapshot.nodes},
        publications={**other.publications, **snapshot.publications},
    )

    def fail(_: str, target: str) -> None:
        if target == "/api/v1/nodes/a":
            raise ServerFailed(500, "InternalError", "no")

    ours._client = Intercepted(new_node.client, fail)
    ours.remove()
    assert taints(new_node) == []
