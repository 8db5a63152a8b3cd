"""The objects that tests are about, each in one short call: pods, nodes, their states, snapshots, API manifests.

A call names only what its test is about; the defaults go together. By default a node is called ``a`` and has two NUMA
nodes of four CPUs and 8Gi each. CPU 0 is reserved, and its kubelet runs the static CPU Manager under
``single-numa-node``. A pod is ``ns/p``. Containers are texts, the same for a pod that replay admits and for a manifest
of the API:

``cpu=3 memory=1Gi vendor.com/gpu=1``
    equal requests and limits, Guaranteed if every container has both cpu and memory
``request:cpu=1``
    a request without a limit
``init cpu=1 memory=1Gi``, ``sidecar cpu=1 memory=1Gi``
    an init container, and one with ``restartPolicy: Always``
``""``
    a container that asks for nothing

Containers are called c0, c1 and so on, in the order of their texts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.model.bitmask import parse_id_list
from topomend.model.condition import Condition, Summary
from topomend.model.machine import Hardware
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation
from topomend.model.nodes.node import HOSTNAME_LABEL, Node
from topomend.model.nodes.node_state import ContainerAllocation, DeviceAllocation, MemoryBlock, NodeState, PodAllocation
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources
from topomend.model.pods.scheduling import WatchedPod
from topomend.model.quantity import parse_quantity, value
from topomend.model.shapes.shape import parse_shape
from topomend.replay.admission import admit
from topomend.wire.group import FIT_GATE
from topomend.wire.published.node_topology import node_topology, status_of

NAMESPACE = "ns"
READY = Condition("Ready", "True", "Ready")

TWO_NUMA_NODES = "sockets:2 cores:4 memory:8Gi"
"""CPUs 0-3 on NUMA node 0 and 4-7 on NUMA node 1; 8Gi on each."""

TWO_NUMA_NODES_SMT = "sockets:2 cores:2 threads:2 memory:8Gi"
"""Two cores of two threads on each NUMA node: CPUs 0,4 and 1,5, then 2,6 and 3,7; 8Gi on each."""

# Pods as replay admits them


def pod(
    name: str = "p",
    *containers: str,
    uid: str | None = None,
    namespace: str = NAMESPACE,
    resources: str | None = None,
    qos_class: str = "",
) -> Pod:
    """A pod as admission reads it. Its uid is its name unless one is given; ``resources`` are the pod-level ones."""
    return Pod(
        namespace,
        name,
        name if uid is None else uid,
        tuple(_container(f"c{index}", text) for index, text in enumerate(containers)),
        qos_class,
        None if resources is None else _resources(resources.split()),
    )


def guaranteed_pod(name: str = "p", cpus: int = 2, *, uid: str | None = None, **resources: int) -> Pod:
    """A Guaranteed pod of one container with so many CPUs and 1Mi; ``gpu=1`` asks for a ``vendor.com/gpu``."""
    devices = "".join(f" vendor.com/{resource}={count}" for resource, count in resources.items())
    return pod(name, f"cpu={cpus} memory=1Mi{devices}", uid=uid)


# Pods as the operator watches them


def watched_pod(
    name: str = "p", cpus: int = 2, *, uid: str | None = None, version: str = "5", **fields: Any
) -> WatchedPod:
    """A Guaranteed pod on the operator's watch; ``fields`` are those of WatchedPod."""
    admitted_as = guaranteed_pod(name, cpus, uid=uid)
    return replace(WatchedPod(NAMESPACE, name, admitted_as.uid, version, admitted_as), **fields)


def refused_pod(name: str = "p", cpus: int = 3, *, node: str = "a", **fields: Any) -> WatchedPod:
    """A pod that the kubelet of ``node`` refused with TopologyAffinityError."""
    status = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
        "node": node,
    }
    return watched_pod(name, cpus, **status | fields)


def gated_pod(name: str = "p", cpus: int = 3, *, created: int = 0, **fields: Any) -> WatchedPod:
    """A pod behind the fit gate, created so many seconds after midnight."""
    fields = {"gates": (FIT_GATE,), "creation_time": f"2026-01-01T00:00:{created:02d}Z"} | fields
    return watched_pod(name, cpus, **fields)


# Nodes


def node(name: str = "a", *, cpus: int = 7, **fields: Any) -> Node:
    """A ready Node on which the scheduler finds so many CPUs and plenty of all else; ``fields`` are those of Node."""
    allocatable = {"cpu": cpus * 1000, "memory": 1 << 60, "pods": 110_000}
    return replace(Node(name, labels={HOSTNAME_LABEL: name}, allocatable=allocatable), **fields)


def kubelet_settings(
    policy: str = "single-numa-node",
    *,
    scope: str = "container",
    options: str = "",
    cpu_manager: str = "static",
    cpu_options: str = "",
    memory_manager: str = "None",
    reserved_cpus: str = "0",
    reserved_memory: str = "512Mi",
    gates: str = "",
    version: str = DEFAULT_VERSION,
) -> KubeletSettings:
    """A kubelet's settings. ``options`` are the Topology Manager's, such as ``prefer-closest-numa-nodes=true``.

    ``reserved_memory`` are the sizes of NUMA nodes 0, 1 and so on, such as ``512Mi,1Gi``; only a static Memory Manager
    reserves them. Empty ``reserved_cpus`` leave the choice to the kubelet. ``gates`` are the feature gates that are on.
    """
    return KubeletSettings(
        version=version,
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        topology_manager_policy_options=_options(options),
        cpu_manager_policy=cpu_manager,
        cpu_manager_policy_options=_options(cpu_options),
        memory_manager_policy=memory_manager,
        reserved_cpus=parse_id_list(reserved_cpus) or None,
        reserved_memory=_reservations(reserved_memory) if memory_manager == "Static" else (),
        feature_gates=dict.fromkeys(gates.split(), True),
    )


def node_state(
    shape: str = TWO_NUMA_NODES,
    policy: str = "single-numa-node",
    *,
    name: str = "a",
    pods: Iterable[Pod] = (),
    **settings: str,
) -> NodeState:
    """A node on which ``pods`` were admitted one after the other; ``settings`` are those of ``kubelet_settings``.

    As the operator knows it: without the hardware that admission does not read.
    """
    parsed = parse_shape(shape)
    machine = replace(parsed.machine(), hardware=Hardware())
    state = NodeState(name, machine, kubelet_settings(policy, **settings), parsed.offered_devices())
    return running(state, *pods)


def running(state: NodeState, *pods: Pod) -> NodeState:
    """The node after it admitted these pods too. Fails the test if it refuses one."""
    for admitted in pods:
        verdict, state = admit(state, admitted)
        assert verdict.admitted, f"{state.name} refuses {admitted.name}: {verdict.message}"
    return state


def pod_allocation(
    name: str = "p",
    cpus: str = "",
    *,
    memory: Iterable[MemoryBlock] = (),
    devices: Iterable[DeviceAllocation] = (),
    uid: str = "",
    namespace: str = NAMESPACE,
) -> PodAllocation:
    """What a pod of one container holds: CPUs such as ``1-3,6``, pinned memory, devices."""
    container = ContainerAllocation("c0", cpus=parse_id_list(cpus), memory=tuple(memory), devices=tuple(devices))
    return PodAllocation(namespace, name, uid, (container,))


# The operator's picture of the cluster


def snapshot_of(*states: NodeState, pods: Iterable[WatchedPod] = (), version: str = "3") -> Snapshot:
    """A cluster of these nodes, as published at ``version``, with these pods on the watch since second 1."""
    seen: list[changes.Change] = []
    for state in states:
        seen += changes.NodeUpdated(node(state.name)), changes.Published(state, version)
    return applied(*seen, *(changes.PodUpdated(watched, 1.0) for watched in pods))


def applied(*cluster_changes: changes.Change, to: Snapshot = Snapshot()) -> Snapshot:  # noqa: B008  a frozen value
    """The snapshot after these changes, one after the other."""
    for change in cluster_changes:
        to = changes.apply(to, change)
    return to


# Manifests of the API


def pod_manifest(
    name: str = "p",
    *containers: str | Mapping[str, Any],
    node: str = "",
    preferred_node: str = "",
    gates: Iterable[str] = (),
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A Pod as the API takes it. ``node`` binds it without a scheduler; ``metadata`` are fields such as ``labels``.

    A container is a text or a manifest of its own; without any there is one that asks for nothing.
    """
    made: list[tuple[bool, dict[str, Any]]] = [
        _container_manifest(f"c{index}", content) for index, content in enumerate(containers or ("",))
    ]
    content: dict[str, Any] = {"containers": [container for is_init, container in made if not is_init]}
    if any(is_init for is_init, _ in made):
        content["initContainers"] = [container for is_init, container in made if is_init]
    if node:
        content["nodeName"] = node
    if preferred_node:
        content["affinity"] = {"nodeAffinity": _preferring(preferred_node)}
    if gates:
        content["schedulingGates"] = [{"name": gate} for gate in gates]
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": content | dict(spec or {}),
    }
    return manifest | ({"status": dict(status)} if status is not None else {})


def node_topology_object(
    state: NodeState,
    *,
    version: str = "7",
    ready: Condition = READY,
    **status: Any,
) -> dict[str, Any]:
    """The NodeTopology that an agent publishes of ``state``; ``status`` replaces fields of its status."""
    content = node_topology(state.name, {**status_of(state, Summary(), (ready,)), **status})
    return {**content, "metadata": {"name": state.name, "resourceVersion": version}}


# Texts


def _kind(words: list[str]) -> ContainerKind:
    return ContainerKind(words.pop(0)) if words and words[0] in ("init", "sidecar") else ContainerKind.APP


def _amounts(words: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Requests and limits as the texts name them."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for word in words:
        resource, _, quantity = word.removeprefix("request:").partition("=")
        requests[resource] = quantity
        if not word.startswith("request:"):
            limits[resource] = quantity
    return requests, limits


def _resources(words: Iterable[str]) -> Resources:
    requests, limits = _amounts(words)
    return Resources(_parsed(requests), _parsed(limits))


def _parsed(quantities: Mapping[str, str]) -> dict[str, int]:
    return {resource: parse_quantity(quantity) for resource, quantity in quantities.items()}


def _container(name: str, text: str) -> Container:
    words = text.split()
    kind = _kind(words)
    return Container(name, kind, _resources(words))


def _container_manifest(name: str, content: str | Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether it is an init container, and its manifest."""
    if not isinstance(content, str):
        return False, dict(content)
    words = content.split()
    kind = _kind(words)
    requests, limits = _amounts(words)
    manifest: dict[str, Any] = {"name": name, "image": "sandbox/pause"}
    if requests:
        manifest["resources"] = {"requests": requests} | ({"limits": limits} if limits else {})
    if kind is ContainerKind.SIDECAR:
        manifest["restartPolicy"] = "Always"
    return kind is not ContainerKind.APP, manifest


def _preferring(node: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}


def _reservations(sizes: str) -> tuple[MemoryReservation, ...]:
    return tuple(
        MemoryReservation(numa_node, "memory", value(parse_quantity(size)))
        for numa_node, size in enumerate(sizes.split(","))
    )


def _options(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in text.split())
