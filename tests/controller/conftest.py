"""A cluster of two NUMA nodes with the kinds installed, and the real operator process against it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.controller.life import Life

from topomend.kube.client import (
    BRAKES,
    EVENTS,
    MUTATING_ADMISSION_POLICIES,
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    RELAUNCHES,
    Client,
    Resource,
    connect,
)
from topomend.kube.errors import AlreadyExists, APIError, NotFound
from topomend.model.node_state import NodeState
from topomend.replay.admission import admit
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.node_topology import Summary, node_topology, status_of
from topomend.wire.pod import read_pod

ROOT = Path(__file__).parents[2]

CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)

DEPLOYMENTS = Resource("apps/v1", "deployments")

BINDINGS = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", namespaced=False)

SYSTEM = "topomend-system"
"""The operator's own namespace."""

POLICY_SECONDS = 2.0
"""How long an API server takes to have a new policy in force: it looks every second."""

SHAPE = "numa:2 cores:4 memory:4Gi"
NODE_A, NODE_B = "numa-a", "numa-b"
"""numa-a is filled so that three CPUs are free, on no NUMA node together; numa-b is empty."""


def pod(name: str, cpus: int, *, node: str = "", preferred: str = "", **metadata: Any) -> dict[str, Any]:
    """A Guaranteed pod, bound to ``node`` without a scheduler if one is given."""
    resources = {"limits": {"cpu": str(cpus), "memory": "64Mi"}}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "sandbox/pause", "resources": resources}]}
    if node:
        spec["nodeName"] = node
    if preferred:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [preferred]}]}
        affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
        spec["affinity"] = {"nodeAffinity": affinity}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def wait_for(what: str, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The condition's first true value; fails the test with ``what`` where none comes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            found = condition()
        except (NotFound, APIError):
            found = None
        if found:
            return found
        time.sleep(0.02)
    pytest.fail(f"waited {seconds:.0f} s for {what}")


def events_of(cluster: "Cluster", content: dict[str, Any], reason: str) -> list[dict[str, Any]]:
    """The Events of this reason on an object."""
    uid = content["metadata"]["uid"]
    found = cluster.client.list(EVENTS).items
    return [each for each in found if each["reason"] == reason and each["regarding"].get("uid") == uid]


@dataclass
class Cluster:
    """A sandbox with the kinds installed, asked as its administrator."""

    sandbox: Sandbox
    client: Client
    states: dict[str, NodeState]

    def install_kind(self, plural: str) -> None:
        content = yaml.safe_load((ROOT / "crds" / f"topomend.io_{plural}.yaml").read_text())
        wait_for(f"the old {plural} to be gone", lambda: self._is_created(content))
        wait_for(f"{plural} to be served", lambda: [self.client.list(Resource("topomend.io/v1alpha1", plural))])

    def _is_created(self, content: dict[str, Any]) -> bool:
        try:
            self.client.create(CRDS, content)
        except AlreadyExists:
            return False
        return True

    def create(self, content: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
        return self.client.create(PODS, content, namespace)

    def get(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.client.get(PODS, name, namespace)

    def pods(self) -> tuple[dict[str, Any], ...]:
        return self.client.list(PODS).items

    def records(self) -> tuple[dict[str, Any], ...]:
        return self.client.list(RELAUNCHES).items

    def phase(self, name: str) -> str:
        return str(self.get(name).get("status", {}).get("phase", ""))

    def running(self, name: str) -> dict[str, Any] | None:
        found = self.get(name)
        return found if found["status"].get("phase") == "Running" else None

    def publish(self, state: NodeState) -> None:
        """Publish a node's state as its agent would."""
        self.states[state.name] = state
        ready = {"type": "Ready", "status": "True", "reason": "Complete", "message": ""}
        since = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        content = node_topology(state.name, {})
        with suppress(AlreadyExists):
            self.client.create(NODE_TOPOLOGIES, content)
        status = status_of(state, Summary()) | {"conditions": [ready | since]}
        before = self.client.get(NODE_TOPOLOGIES, state.name).get("status", {})
        patch = {"status": dict.fromkeys(before) | status}  # what is no longer there is to go
        self.client.merge(NODE_TOPOLOGIES, state.name, patch, subresource="status")

    def occupy(self, node: str, name: str, cpus: int) -> None:
        """Have a pod run on ``node``, and publish the state that replay predicts."""
        made = self.create(pod(name, cpus, node=node))
        wait_for(f"{name} to run on {node}", lambda: self.running(name))
        verdict, state = admit(self.states[node], read_pod(made))
        assert verdict.admitted
        self.publish(state)

    def fragment(self) -> None:
        """Publish both nodes, and fill numa-a so that three CPUs are free, at most two on one NUMA node."""
        for state in list(self.states.values()):
            self.publish(state)
        self.occupy(NODE_A, "filler-0", 2)
        self.occupy(NODE_A, "filler-1", 2)

    def vacate(self, node: str, name: str) -> None:
        """Have a pod end, and publish the node without it."""
        self.remove(self.get(name))
        wait_for(f"{name} to be gone", lambda: all(each["metadata"]["name"] != name for each in self.pods()))
        state = self.states[node]
        self.publish(replace(state, pods=tuple(each for each in state.pods if each.name != name), memory=None))

    def clear(self) -> None:
        """Remove every pod and record, and publish the nodes as empty."""
        for each in self.pods():
            metadata = each["metadata"]
            if metadata.get("finalizers"):
                self._unfinalize(metadata)
            self.remove(each)
        for record in self.records():
            metadata = record["metadata"]
            self.client.delete(RELAUNCHES, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        wait_for("all pods to be gone", lambda: not self.pods())
        for state in list(self.states.values()):
            self.publish(replace(state, pods=(), memory=None))

    def _unfinalize(self, metadata: dict[str, Any]) -> None:
        self.client.merge(PODS, metadata["name"], {"metadata": {"finalizers": None}}, metadata["namespace"])

    def remove(self, content: dict[str, Any]) -> None:
        metadata = content["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        with suppress(NotFound):
            self.client._ask("DELETE", PODS.path(metadata["namespace"], metadata["name"]), options)


class Operator:
    """The real operator process, or one started by ``module``. Its log is kept for the test to read."""

    def __init__(self, kubeconfig: Path, log: Path, *flags: str, module: str = "") -> None:
        self.log = log
        log.touch()
        self.process = _of_module(module, kubeconfig, log, flags) if module else Life(kubeconfig, log, flags)

    def text(self) -> str:
        return self.log.read_text()

    def wait_until_it_watches(self) -> None:
        """From then on what happens is seen as it happens, not by the next sweep."""
        wait_for("the operator to list", lambda: "the cluster is listed" in self.text())
        wait_for("the operator to watch", lambda: "every kind is watched" in self.text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


def _of_module(module: str, kubeconfig: Path, log: Path, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "operator")}
    with log.open("ab") as written:
        return subprocess.Popen(
            [sys.executable, "-m", module, "operator", *flags],
            cwd=ROOT,
            env=environment,
            stdout=written,
            stderr=subprocess.STDOUT,
        )


@contextmanager
def two_node_cluster() -> Iterator[Cluster]:
    """numa-a and numa-b in a sandbox, and the kinds that the operator needs."""
    settings = {"topology_manager_policy": "single-numa-node"}
    specs = [NodeSpec.of_shape(name, SHAPE, **settings) for name in (NODE_A, NODE_B)]
    with Sandbox.up(specs, audit=True) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        states = {each.name: NodeState(each.name, each.machine, each.kubelet, each.devices) for each in specs}
        cluster = Cluster(sandbox, client, states)
        cluster.install_kind("nodetopologies")
        cluster.install_kind("relaunches")
        cluster.install_kind("steerings")
        assert {node["metadata"]["name"] for node in client.list(NODES).items} == {NODE_A, NODE_B}
        yield cluster
        client.close()


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[Cluster]:
    """One sandbox for all tests of the operator."""
    with two_node_cluster() as cluster:
        yield cluster


@pytest.fixture
def fragmented(two_nodes: Cluster) -> Iterator[Cluster]:
    """numa-a has three CPUs free, at most two on one NUMA node; numa-b is empty; both are published."""
    two_nodes.fragment()
    yield two_nodes
    two_nodes.clear()


@pytest.fixture
def start_operator(two_nodes: Cluster, tmp_path: Path) -> Iterator[Callable[..., Operator]]:
    """Start the operator, against the API server or whatever ``kubeconfig`` names; ended with the test."""
    started: list[Operator] = []

    def start(*flags: str, kubeconfig: Path = two_nodes.sandbox.kubeconfig, module: str = "") -> Operator:
        started.append(Operator(kubeconfig, tmp_path / f"operator-{len(started)}.log", *flags, module=module))
        return started[-1]

    yield start
    for operator in started:
        if operator.process.poll() is None:
            operator.terminate()
        print(f"{operator.log.name}:\n{operator.text()}")  # shown where the test fails


@pytest.fixture
def brake(two_nodes: Cluster) -> Iterator[None]:
    """The brake's policy as it is deployed, its binding, and the operator's namespace."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, namespace)
    with suppress(AlreadyExists):
        two_nodes.client.create(CRDS, yaml.safe_load((ROOT / "crds" / "topomend.io_brakes.yaml").read_text()))
    wait_for("brakes to be served", lambda: [two_nodes.client.list(BRAKES)])
    documents = yaml.safe_load_all((ROOT / "deploy" / "base" / "brake-policy.yaml").read_text())
    made = []
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), documents, strict=True):
        with suppress(AlreadyExists):  # another test has installed everything
            made.append((resource, two_nodes.client.create(resource, document)))
    time.sleep(POLICY_SECONDS)
    yield
    for resource, content in made:
        name = content["metadata"]["name"]  # a test may have installed it anew
        two_nodes.client.delete(resource, name, uid=two_nodes.client.get(resource, name)["metadata"]["uid"])


@pytest.fixture
def agents(two_nodes: Cluster) -> Iterator[None]:
    """An agent beside each kubelet, as the administrator."""
    running = [start_agent(two_nodes, name) for name in (NODE_A, NODE_B)]
    yield
    for each in running:
        each.terminate()
        each.wait(10)


def start_agent(cluster: Cluster, name: str) -> subprocess.Popen[bytes]:
    """The real agent of a node."""
    node = cluster.sandbox.node(name)
    return subprocess.Popen(
        [
            *cluster.sandbox.exec_prefix(name),
            str(Path(sys.executable).with_name("topomend")),
            "agent",
            f"--node-name={name}",
            f"--kubelet-config={node.kubelet_config}",
            f"--pod-resources={node.pod_resources}",
            f"--kubelet-state={node.kubelet_state}",
        ],
        env={**os.environ, "KUBECONFIG": str(cluster.sandbox.kubeconfig), "PYTHONPATH": str(ROOT / "operator")},
    )


def shown(cluster: Cluster, node: str) -> set[str]:
    """The names of the pods that a node's agent has published."""
    status = cluster.client.get(NODE_TOPOLOGIES, node).get("status", {})
    return {each["name"] for each in status.get("pods", ())}
