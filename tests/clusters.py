"""Sandboxes with the kinds of topomend installed, asked as their administrator, and the agents of their nodes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from deploy.manifests import crd
from tests.builders import pod_manifest
from tests.processes import end
from tests.waiting import eventually

from topomend.gating.definitions import BRAKE, NAMES, STEER, Installation, policy_and_binding
from topomend.kube.client import Client, connect
from topomend.kube.errors import AlreadyExists, Forbidden, NotFound
from topomend.kube.resources import (
    BRAKES,
    EVENTS,
    MUTATING_ADMISSION_POLICIES,
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RELAUNCHES,
    STEERINGS,
    Resource,
)
from topomend.model.condition import Summary
from topomend.model.nodes.node_state import NodeState
from topomend.replay.admission import admit
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.group import (
    BRAKE_NAME,
    CREATOR_ANNOTATION,
    FIT_GATE,
    RELAUNCH_PINNED_ANNOTATION,
    STEER_LABEL,
    STEERING,
    STEERING_NAME,
)
from topomend.wire.pods.pod import read_pod
from topomend.wire.published.node_topology import node_topology, status_of

ROOT = Path(__file__).parents[1]

CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)

DEPLOYMENTS = Resource("apps/v1", "deployments")

BINDINGS = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", namespaced=False)

SYSTEM = "topomend-system"
"""The operator's own namespace."""

POLICY_SECONDS = 2.0
"""How long an API server takes to have a new policy in force: it looks every second."""

POLICY_OF_NEW_KIND_SECONDS = 60.0
"""How long that may take where the policy's parameter is of a kind that is new: it looks kinds up each 30 seconds."""

SHAPE = "numa:2 cores:4 memory:4Gi"
STORM = "storm"
"""The name of the Deployment whose replicas are refused, and their label."""

NODE_A, NODE_B = "numa-a", "numa-b"
"""numa-a is filled so that three CPUs are free, on no NUMA node together; numa-b is empty."""


COLLECTOR_SECONDS = 120.0
"""How long a garbage collector may take to delete what belonged to a deleted object: usually milliseconds, but it looks
kinds up each 30 s, and waits as long for those that have just gone."""


def wait_until_no_policy_acts(cluster: "Cluster") -> None:
    """Wait until a new pod is neither refused nor stamped: an API server acts by deleted policies for a while.

    Policies go with their configurations.
    """
    eventually(
        "the policies to go", lambda: not cluster.client.list(MUTATING_ADMISSION_POLICIES).items, COLLECTOR_SECONDS
    )
    probe = pod("probe", 1)
    probe["spec"]["schedulingGates"] = [{"name": FIT_GATE}]  # which policies refuse where nothing steers

    def is_left_alone() -> bool:
        made = cluster.client.create(PODS, probe, "default", dry_run=True)
        return CREATOR_ANNOTATION not in made["metadata"].get("annotations", {})

    eventually("the policies to be out of force", is_left_alone)


def policies(definition: str) -> tuple[dict[str, Any], ...]:
    """A policy of new pods and its binding, as the operator installs them."""
    return policy_and_binding(Installation(SYSTEM, "topomend-operator"), definition, "v1")


def every_policy() -> list[dict[str, Any]]:
    """All that the operator installs where policies are served."""
    return [item for definition in NAMES for item in policies(definition)]


def pod(name: str, cpus: int, *, node: str = "", preferred: str = "", **metadata: Any) -> dict[str, Any]:
    """A Guaranteed pod, bound to ``node`` without a scheduler if one is given, and relaunched elsewhere too."""
    if node:
        metadata["annotations"] = {RELAUNCH_PINNED_ANNOTATION: "true", **metadata.get("annotations", {})}
    resources = {"limits": {"cpu": str(cpus), "memory": "64Mi"}}
    container = {"name": "main", "image": "sandbox/pause", "resources": resources}
    return pod_manifest(name, container, node=node, preferred_node=preferred, **metadata)


@contextmanager
def priority_class(cluster: "Cluster", name: str, number: int, **fields: str) -> Iterator[None]:
    """A PriorityClass of this value, which the API server knows; ``fields`` are further ones of the object."""
    head = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": name}}
    made = cluster.client.create(PRIORITY_CLASSES, head | {"value": number} | fields)
    user = pod("user-of-" + name, 1)
    user["spec"]["priorityClassName"] = name
    try:
        # The API server's admission looks in its own cache, and refuses pods of a class that is not there yet.
        eventually(f"the API server to know {name}", lambda: cluster.client.create(PODS, user, "default", dry_run=True))
        yield
    finally:
        cluster.client.delete(PRIORITY_CLASSES, name, uid=made["metadata"]["uid"])
        # The next class of this name would be taken for known, and be gone for the moment between the two.
        eventually(f"the API server to forget {name}", lambda: _is_refused(cluster, user))


def _is_refused(cluster: "Cluster", content: dict[str, Any]) -> bool:
    """Whether the API server admits no such pod."""
    try:
        cluster.client.create(PODS, content, "default", dry_run=True)
    except Forbidden:
        return True
    return False


def cordon(cluster: "Cluster", *names: str) -> None:
    """Cordon nodes, and wait until kube-scheduler knows: it may hear of a later pod before it hears of a node."""
    for name in names:
        cluster.client.merge(NODES, name, {"spec": {"unschedulable": True}})
    for name in names:
        eventually(f"the scheduler to know that {name} is cordoned", partial(_is_kept_out, cluster, name))


def uncordon(cluster: "Cluster", *names: str) -> None:
    """Let nodes have pods again."""
    for name in names:
        cluster.client.merge(NODES, name, {"spec": {"unschedulable": None}})


def _is_kept_out(cluster: "Cluster", node: str) -> bool:
    """Whether the scheduler finds no node for a pod that may go to this one alone. It is gone once that is known."""
    tried = pod_manifest(f"for-{node}", spec={"nodeSelector": {"kubernetes.io/hostname": node}})
    with suppress(AlreadyExists):
        cluster.create(tried)
    content = cluster.get(f"for-{node}")
    conditions = content["status"].get("conditions", ())
    is_kept_out = any(condition.get("reason") == "Unschedulable" for condition in conditions)
    if is_kept_out or content["spec"].get("nodeName"):
        cluster.remove(content)
    return is_kept_out


@contextmanager
def storming_deployment(cluster: "Cluster") -> Iterator[None]:
    """A Deployment of one replica that has to run on NODE_A, where nothing is large enough for it."""
    replica = pod("", 3)
    replica["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_A}
    template = {"metadata": {"labels": {"app": STORM}}, "spec": replica["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": STORM}}, "template": template}
    content = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": STORM}, "spec": spec}
    made = cluster.client.create(DEPLOYMENTS, content, "default")
    try:
        yield
    finally:
        cluster.client.delete(DEPLOYMENTS, STORM, "default", uid=made["metadata"]["uid"])
        eventually("no replica to be left", lambda: not storm_replicas(cluster), COLLECTOR_SECONDS)


def storm_replicas(cluster: "Cluster") -> list[dict[str, Any]]:
    """The pods of the storming Deployment."""
    return [pod for pod in cluster.pods() if pod["metadata"].get("labels", {}).get("app") == STORM]


def events_of(cluster: "Cluster", content: dict[str, Any], reason: str) -> list[dict[str, Any]]:
    """The Events of this reason on an object."""
    uid = content["metadata"]["uid"]
    events = cluster.client.list(EVENTS).items
    return [event for event in events if event["reason"] == reason and event["regarding"].get("uid") == uid]


@dataclass
class Cluster:
    """A sandbox with the kinds installed, asked as its administrator."""

    sandbox: Sandbox
    client: Client
    states: dict[str, NodeState]

    def install_kind(self, plural: str) -> None:
        content = crd(plural)
        eventually(f"the old {plural} to be gone", lambda: self._is_created(content))
        eventually(f"{plural} to be served", lambda: [self.client.list(Resource("topomend.io/v1alpha1", plural))])

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
        pod = self.get(name)
        return pod if pod["status"].get("phase") == "Running" else None

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
        eventually(f"{name} to run on {node}", lambda: self.running(name))
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
        eventually(f"{name} to be gone", lambda: all(content["metadata"]["name"] != name for content in self.pods()))
        state = self.states[node]
        self.publish(replace(state, pods=tuple(pod for pod in state.pods if pod.name != name), memory=None))

    def clear(self) -> None:
        """Remove every pod and record, and publish the nodes as empty."""
        self.remove_all()
        for state in list(self.states.values()):
            self.publish(replace(state, pods=(), memory=None))

    def remove_all(self) -> None:
        """Remove every pod and record. What fails while the machine stands still is tried again: tests come after.

        A controller that was deleted goes on creating pods until the garbage collector has deleted its own objects.
        """
        eventually("all pods to be gone", self._has_no_pods_after_removal, COLLECTOR_SECONDS)

    def _has_no_pods_after_removal(self) -> bool:
        for content in self.pods():
            metadata = content["metadata"]
            if metadata.get("finalizers"):
                self._unfinalize(PODS, metadata)
            self.remove(content)
        for record in self.records():
            metadata = record["metadata"]
            if metadata.get("finalizers"):  # of a relaunch that a test left where it was
                self._unfinalize(RELAUNCHES, metadata)
            with suppress(NotFound):
                self.client.delete(RELAUNCHES, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        return not self.pods()

    def _unfinalize(self, resource: Resource, metadata: dict[str, Any]) -> None:
        with suppress(NotFound):  # the controller of its finalizer was faster
            self.client.merge(resource, metadata["name"], {"metadata": {"finalizers": None}}, metadata["namespace"])

    def remove(self, content: dict[str, Any]) -> None:
        metadata = content["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        with suppress(NotFound):
            self.client._ask("DELETE", PODS.path(metadata["namespace"], metadata["name"]), options)


@contextmanager
def cluster_of(specs: Sequence[NodeSpec]) -> Iterator[Cluster]:
    """A sandbox of these nodes, and the kinds that the operator needs."""
    with Sandbox.up(specs, audit=True) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        states = {spec.name: NodeState(spec.name, spec.machine, spec.kubelet, spec.devices) for spec in specs}
        cluster = Cluster(sandbox, client, states)
        cluster.install_kind("nodetopologies")
        cluster.install_kind("relaunches")
        cluster.install_kind("steerings")
        assert {node["metadata"]["name"] for node in client.list(NODES).items} == set(states)
        yield cluster
        client.close()


@contextmanager
def two_node_cluster() -> Iterator[Cluster]:
    """numa-a and numa-b in a sandbox, and the kinds that the operator needs."""
    settings = {"topology_manager_policy": "single-numa-node"}
    with cluster_of([NodeSpec.of_shape(name, SHAPE, **settings) for name in (NODE_A, NODE_B)]) as cluster:
        yield cluster


@contextmanager
def brake_on(cluster: Cluster) -> Iterator[None]:
    """The brake's policy as it is deployed, its binding, and the operator's namespace."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    with suppress(AlreadyExists):
        cluster.client.create(NAMESPACES, namespace)
    with suppress(AlreadyExists):
        cluster.client.create(CRDS, crd("brakes"))
    eventually("brakes to be served", lambda: [cluster.client.list(BRAKES)])
    made = []
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(BRAKE), strict=True):
        with suppress(AlreadyExists):  # another test has installed everything
            made.append((resource, cluster.client.create(resource, document)))
    _wait_until_the_brake_acts(cluster)
    yield
    for resource, content in made:
        name = content["metadata"]["name"]  # a test may have installed it anew
        cluster.client.delete(resource, name, uid=cluster.client.get(resource, name)["metadata"]["uid"])


def _wait_until_the_brake_acts(cluster: Cluster) -> None:
    """Wait until a pod of a listed controller is gated. The list is as it was afterwards."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "probe", "uid": "probe", "controller": True}
    probe = pod("probe", 1, ownerReferences=[owner])

    def is_gated() -> bool:
        made = cluster.client.create(PODS, probe, "default", dry_run=True)
        return bool(made["spec"].get("schedulingGates"))

    content = {"apiVersion": BRAKES.api_version, "kind": "Brake", "metadata": {"name": BRAKE_NAME}}
    lists: dict[str, Any] = {"owners": {"probe": "default/ReplicaSet/probe"}}
    made = None
    with suppress(AlreadyExists):
        made = cluster.client.create(BRAKES, content | lists, SYSTEM)
    if not made:
        cluster.client.merge(BRAKES, BRAKE_NAME, lists | {"validUntil": None}, SYSTEM)
    eventually("the brake to act", is_gated, POLICY_OF_NEW_KIND_SECONDS)
    if made:
        cluster.client.delete(BRAKES, BRAKE_NAME, SYSTEM, uid=made["metadata"]["uid"])
    else:
        cluster.client.merge(BRAKES, BRAKE_NAME, {"owners": {"probe": None}}, SYSTEM)
    eventually("the brake to let go", lambda: not is_gated())


def steer(cluster: Cluster, namespace: str) -> None:
    """Have the policy of steering in force as it is deployed, and create a namespace with its label."""
    for name, labels in ((SYSTEM, {}), (namespace, {STEER_LABEL: "enabled"})):
        metadata = {"name": name, "labels": labels}
        cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    steering = {"apiVersion": STEERINGS.api_version, "kind": STEERING, "metadata": {"name": STEERING_NAME}}
    cluster.client.create(STEERINGS, steering, SYSTEM)
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(STEER), strict=True):
        cluster.client.create(resource, document)

    def is_in_force() -> bool:
        with suppress(AlreadyExists):
            cluster.create(pod("tried", 1), namespace)
        tried = cluster.get("tried", namespace)
        cluster.remove(tried)
        return bool(tried["spec"].get("schedulingGates"))

    eventually("the policy to be in force", is_in_force, POLICY_OF_NEW_KIND_SECONDS)


@contextmanager
def agents_on(cluster: Cluster, log: Path | None = None) -> Iterator[None]:
    """The real agent of every node, which need not have published yet. All write to ``log``, or where the test does."""
    with ExitStack() as stack:
        with log.open("ab") if log else nullcontext() as file:
            for name in cluster.states:
                stack.callback(end, start_agent(cluster, name, file))
        yield


def start_agent(cluster: Cluster, name: str, log: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
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
        env={
            **os.environ,
            "KUBECONFIG": str(cluster.sandbox.kubeconfig),
            "PYTHONPATH": str(ROOT / "operator"),
            "PYTHONFAULTHANDLER": "1",
        },
        stderr=log,
    )


def shown(cluster: Cluster, node: str) -> set[str]:
    """The names of the pods that a node's agent has published."""
    status = cluster.client.get(NODE_TOPOLOGIES, node).get("status", {})
    return {entry["name"] for entry in status.get("pods", ())}


@contextmanager
def served(client: Client, definitions: Sequence[dict[str, Any]], resource: Resource) -> Iterator[None]:
    """These kinds are installed, and gone afterwards; ``resource`` is the one that is waited for."""
    made = list[dict[str, Any]]()
    try:
        for definition in definitions:
            made.append(client.create(CRDS, definition))
        eventually("the kind to be served", lambda: client.list(resource))
        yield
    finally:
        for definition in made:
            client.delete(CRDS, definition["metadata"]["name"], uid=definition["metadata"]["uid"])
        # The API server looks every five seconds whether the last object of a kind is gone.
        for definition in made:
            eventually("a kind to be gone", partial(_is_gone, client, CRDS, definition["metadata"]["name"]), 60)
        eventually("the kind to be served no more", partial(_is_unserved, client, resource))


def _is_gone(client: Client, resource: Resource, name: str) -> bool:
    with suppress(NotFound):
        client.get(resource, name)
        return False
    return True


def _is_unserved(client: Client, resource: Resource) -> bool:
    with suppress(NotFound):
        client.list(resource)
        return False
    return True
