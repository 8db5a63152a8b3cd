"""One node's agent is hostile: with its own token it publishes what it likes, and the pods of others are let go."""

import dataclasses
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from deploy.manifests import objects
from tests.builders import node_state
from tests.clusters import (
    NODE_A,
    NODE_B,
    SHAPE,
    SYSTEM,
    Cluster,
    cluster_of,
    events_of,
    every_policy,
    pod,
    shown,
    start_agent,
)
from tests.deploy.api import API, administrator, path_of
from tests.deploy.conftest import token_of
from tests.hostile import costly_state
from tests.operator_process import Operator
from tests.processes import end
from tests.waiting import awake, eventually, stretched

from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, STEERINGS
from topomend.model.condition import Summary
from topomend.model.nodes.node_state import NodeState
from topomend.relaunch.narrowed_affinity import narrowing_of
from topomend.sandbox import NodeSpec
from topomend.wire.group import STEERING, STEERING_NAME
from topomend.wire.published.node_topology import HEARTBEAT, status_of

pytestmark = pytest.mark.cluster

HONEST, LIAR = NODE_A, NODE_B
NAMESPACE = "victims"
TOPOLOGIES = f"/apis/{NODE_TOPOLOGIES.api_version}/nodetopologies"
WORKLOADS = ("DaemonSet", "Deployment")

HOLES = 7
"""How many pods of one CPU the honest node holds."""

WAITING = 12
"""Pods that fit no NUMA node of the honest node, each of a kind of its own: for each the liar would be asked anew."""

ATTACK_SECONDS = 0.5
UNGATED_SECONDS = 5.0
GROWTH = 64 << 20
"""By how much the operator's memory may grow under attack."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes, one of them large, all that the manifests install, and a namespace whose pods are steered."""
    shapes = {HONEST: SHAPE, LIAR: "numa:2 cores:20 memory:4Gi"}
    settings = {"topology_manager_policy": "single-numa-node"}
    with cluster_of([NodeSpec.of_shape(name, shape, **settings) for name, shape in shapes.items()]) as cluster:
        admin = administrator(cluster.sandbox.kubeconfig)
        for item in (*objects(), *every_policy()):
            if item["kind"] not in WORKLOADS:
                eventually(f"{path_of(item)}", lambda item=item: admin.apply(path_of(item), item).allowed)  # type: ignore[misc]
        labels = {"topomend.io/steer": "enabled"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
        cluster.client.create(NAMESPACES, namespace)
        steering = {"apiVersion": STEERINGS.api_version, "kind": STEERING, "metadata": {"name": STEERING_NAME}}
        with suppress(AlreadyExists):
            cluster.client.create(STEERINGS, steering, SYSTEM)
        eventually("new pods to be gated", lambda: _is_gated_at_birth(admin))
        agent = start_agent(cluster, HONEST)
        eventually("the honest agent to publish", lambda: _published(cluster, HONEST))
        yield cluster
        end(agent)


DISTRUST_SECONDS = 2.0
"""After how long the operator tells that it does not believe an agent; in an installation these are 30."""


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """The operator under the account that the manifests give it."""
    configuration = yaml.safe_load(cluster.sandbox.kubeconfig.read_text())
    admin = administrator(cluster.sandbox.kubeconfig)
    configuration["users"][0]["user"] = {"token": token_of(admin, SYSTEM, "topomend-operator")}
    path = tmp_path / "operator.kubeconfig"
    path.touch(0o600)
    path.write_text(yaml.safe_dump(configuration))
    constants = {"reconcile.nodes.staleness.DISTRUST_SECONDS": DISTRUST_SECONDS}
    operator = Operator(path, tmp_path / "operator.log", constants=constants)
    operator.wait_until_it_watches()
    yield operator
    operator.terminate()
    print(operator.text())
    for content in _pods(cluster):
        cluster.remove(content)
    eventually("the honest agent to publish that nothing is left", lambda: not shown(cluster, HONEST))


@pytest.fixture(scope="module")
def liar(cluster: Cluster) -> API:
    """The account of the agent on the large node, with the token of its pod."""
    admin = administrator(cluster.sandbox.kubeconfig)
    spec = {
        "serviceAccountName": "topomend-agent",
        "nodeName": LIAR,
        "containers": [{"name": "agent", "image": "sandbox/pause"}],
    }
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": spec}
    made = admin.create("/api/v1/namespaces/topomend-agent/pods", manifest)
    assert made.allowed, made.message
    liar = admin.as_token(token_of(admin, "topomend-agent", "topomend-agent", made.content))
    head = {"apiVersion": NODE_TOPOLOGIES.api_version, "kind": "NodeTopology", "metadata": {"name": LIAR}}
    created = liar.create(TOPOLOGIES, head)
    assert created.allowed, created.message
    return liar


@contextmanager
def attack(liar: API, machine: Callable[[int], NodeState]) -> Iterator[Callable[[int], None]]:
    """Publish another machine every ATTACK_SECONDS, as numbered from 0, beginning before the block.

    What the block gets waits until so many more are published.
    """
    ended, refused, published = threading.Event(), [], [0]

    def publish(number: int) -> None:
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        ready = {"type": "Ready", "status": "True", "reason": "Complete", "message": ""} | since
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = status_of(machine(number), Summary()) | {"conditions": [ready], HEARTBEAT: now}
        answer = liar.patch(f"{TOPOLOGIES}/{LIAR}/status", {"status": status})
        if not answer.allowed:
            refused.append(answer.message)
        published[0] += 1

    def wait(number: int) -> None:
        before = published[0]
        eventually(f"{number} more machines to be published", lambda: published[0] >= before + number, 60)

    def publish_all() -> None:
        number = 0
        while not ended.wait(ATTACK_SECONDS):
            number += 1
            publish(number)

    publish(0)
    thread = threading.Thread(target=publish_all)
    thread.start()
    try:
        yield wait
    finally:
        ended.set()
        thread.join(30)
    assert refused == []


def contradicting(number: int) -> NodeState:
    """A machine of 1024 free CPUs, on whose every NUMA node any pod would fit."""
    state = node_state("numa:64 cores:16 memory:256Mi", name=LIAR, options="max-allowable-numa-nodes=64")
    chance = random.Random(number)
    nodes = tuple(
        dataclasses.replace(numa_node, distances=tuple(chance.randint(10, 255) for _ in range(64)))
        for numa_node in state.machine.numa_nodes
    )
    return dataclasses.replace(state, machine=dataclasses.replace(state.machine, numa_nodes=nodes))


def costly(number: int) -> NodeState:
    """A machine that its Node does not refute, and on which an admission takes long."""
    return costly_state(LIAR, seed=number)


@pytest.mark.parametrize("machine", [contradicting, costly])
def test_pods_of_others_are_let_go_in_time_and_none_is_sent_to_the_node_whose_agent_lies(
    cluster: Cluster, operator: Operator, liar: API, machine: Callable[[int], NodeState]
) -> None:
    process = psutil.Process(operator.process._process.pid)  # type: ignore[union-attr]
    with attack(liar, machine) as wait:
        for number in range(WAITING):
            cluster.create(_sized(f"wide-{number}", 5, 2048 + number), NAMESPACE)
        wait(5)
        before = process.memory_info().rss
        took = [_ungated_after(cluster, f"victim-{number}") for number in range(HOLES)]
        wait(10)
        grown = process.memory_info().rss - before
    print(f"ungated, s: {[round(seconds, 2) for seconds in took]}; memory grew by {grown >> 20} MiB")
    assert max(took) < stretched(UNGATED_SECONDS)
    assert grown < GROWTH
    assert {host for content in _pods(cluster) for host in _narrowed_to(content)} == {HONEST}
    for number in range(HOLES):
        eventually(f"victim-{number} to run", partial(_runs_on, cluster, f"victim-{number}", HONEST))
    assert {content["metadata"]["name"] for content in _pods(cluster) if not _is_gated(content)} == {
        f"victim-{number}" for number in range(HOLES)
    }
    assert "Traceback" not in operator.text()
    assert "unexpected" not in operator.text()


def test_a_user_is_told_what_contradicts_the_node(cluster: Cluster, operator: Operator, liar: API) -> None:
    words = "its agent is not believed: it publishes 1024 CPUs, its Node has 40"
    with attack(liar, contradicting):
        for verb in (("show", LIAR), ("check",)):
            assert words in _kubectl_numa(cluster, *verb)
        waiting = cluster.create(_sized("wide", 5, 64), NAMESPACE)
        topology = cluster.client.get(NODE_TOPOLOGIES, LIAR)
        eventually("the wait to be told", lambda: events_of(cluster, waiting, "UngateDeferred"))
        note = f"no pod is placed on {LIAR}: {words}"
        eventually(
            "the lie to be told",
            lambda: [event for event in events_of(cluster, topology, "TopologyNotBelieved") if event["note"] == note],
        )
    assert words in _kubectl_numa(cluster, "explain", "pod/wide", "-n", NAMESPACE, "--node", LIAR)
    assert "Traceback" not in operator.text()


def _sized(name: str, cpus: int, mebibytes: int) -> dict[str, Any]:
    content = pod(name, cpus)
    content["spec"]["containers"][0]["resources"]["limits"]["memory"] = f"{mebibytes}Mi"
    return content


def _is_gated_at_birth(admin: API) -> bool:
    answer = admin.apply(f"/api/v1/namespaces/{NAMESPACE}/pods/tried", pod("tried", 3), dry_run=True)
    return bool(answer.allowed and _is_gated(answer.content))


def _is_gated(content: dict[str, Any]) -> bool:
    return bool(content["spec"].get("schedulingGates"))


def _narrowed_to(content: dict[str, Any]) -> tuple[str, ...]:
    """The nodes that a pod was let go for."""
    return narrowing_of(content["spec"].get("affinity", {}).get("nodeAffinity") or {}).hosts


def _published(cluster: Cluster, node: str) -> bool:
    return "status" in cluster.client.get(NODE_TOPOLOGIES, node)


def _pods(cluster: Cluster) -> list[dict[str, Any]]:
    return [content for content in cluster.pods() if content["metadata"]["namespace"] == NAMESPACE]


def _ungated_after(cluster: Cluster, name: str) -> float:
    """Seconds from the creation of a pod of one CPU until it is let go."""
    began = awake()
    cluster.create(_sized(name, 1, 256), NAMESPACE)
    eventually(f"{name} to be let go", lambda: not _is_gated(cluster.get(name, NAMESPACE)), seconds=60, poll=0.05)
    return awake() - began


def _runs_on(cluster: Cluster, name: str, node: str) -> bool:
    content = cluster.get(name, NAMESPACE)
    return bool(content["status"].get("phase") == "Running" and content["spec"]["nodeName"] == node)


def _kubectl_numa(cluster: Cluster, *words: str) -> str:
    program = Path(sys.executable).with_name("kubectl-numa")
    arguments = [str(program), *words, "--kubeconfig", str(cluster.sandbox.kubeconfig)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=False).stdout
