"""Each container's cgroup and processes on a NUMA machine agree with its NodeTopology: ``make vm-test``.

The kubelet decides, runc writes the cgroups, the kernel enforces them; NodeTopology and replay tell the same of them.
Its name keeps it out of ``make test``, as that of ``on_qemu``.
"""

import functools
import operator
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from verify.e2e.images import IDLE
from verify.vm.node import AGENT, NODE, PODS_PATH, Guest

from topomend.alignment.container import align_allocation
from topomend.model.bitmask import format_id_list, mask_of, parse_id_list
from topomend.model.machine import Machine
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation, allocations
from topomend.replay.admission import admit, shared_pool
from topomend.wire.pods.pod import read_pod


def waiting(name: str, cpu: str = "", memory: str = "", **limits: str) -> dict[str, Any]:
    """A container that waits; Guaranteed if it names an amount of both."""
    amounts = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **limits}
    return {"name": name, "image": IDLE, "resources": {"limits": amounts}}


BURSTABLE = {"name": "main", "image": IDLE, "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}}}

PODS: Mapping[str, dict[str, Any]] = {
    "exclusive": {
        "containers": [
            waiting("two", "2", "100Mi"),
            waiting("one", "1", "64Mi"),
            waiting("fraction", "250m", "32Mi"),
        ]
    },
    "across-nodes": {"containers": [waiting("main", "4", "64Mi")]},
    "hugepages": {"containers": [waiting("main", "1", "64Mi", **{"hugepages-2Mi": "8Mi"})]},
    "too-much-memory": {"containers": [waiting("main", "1", "1100Mi")]},
    "initialized": {
        "initContainers": [
            waiting("prepare", "2", "64Mi"),
            {**waiting("sidecar", "1", "64Mi"), "restartPolicy": "Always"},
        ],
        "containers": [waiting("main", "1", "64Mi")],
    },
    "shared": {"containers": [waiting("main", "500m", "64Mi")]},
    "too-late": {"containers": [waiting("main", "2", "64Mi")]},
    "burstable": {"containers": [BURSTABLE]},
    "best-effort": {"containers": [waiting("main")]},
}
"""Pods in their order of creation. NUMA node 0 has three CPUs beside the reserved one; the first pod gets them."""

REFUSED = ["across-nodes", "too-much-memory", "too-late"]
FREED = "hugepages"

LASTING = {
    f"default/{pod}/{container['name']}"
    for pod, spec in PODS.items()
    if pod not in REFUSED and "initContainers" not in spec
    for container in spec["containers"]
}
FOLLOWING = {"sidecar", "main"}
"""The containers that run all the time, and those of ``initialized`` after its init container has ended."""


@dataclass(frozen=True)
class Allowed:
    """CPUs and NUMA nodes of memory as lists in Linux' format."""

    cpus: str
    mems: str


@dataclass(frozen=True)
class Confinement:
    """What Linux allows one container: ``group`` is its cgroup, as written and as effective, then its processes."""

    group: Allowed
    effective: Allowed
    processes: frozenset[Allowed]


@dataclass(frozen=True)
class Cluster:
    """The node with PODS on it. ``replayed`` are, by pod, the allocations of its containers that replay predicted."""

    node: Guest
    replayed: Mapping[str, list[ContainerAllocation]]


FILES = {"cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective", "cgroup.procs"}
_NONE = Allowed("none", "none")
NOTHING = Confinement(_NONE, _NONE, frozenset({_NONE}))
"""The confinement of a container without a cgroup."""


@pytest.fixture(scope="module")
def cluster(node: Guest) -> Iterator[Cluster]:
    """The node with PODS, of which each was decided as replay said; the init container has not ended yet."""
    yield Cluster(node, {name: _decided(node, name, spec) for name, spec in PODS.items()})
    for name in PODS:
        node.admin.delete(f"{PODS_PATH}/{name}")
    node.within_seconds("nothing is held", lambda: not any(pod.containers for pod in node.state().pods))


def _decided(node: Guest, name: str, spec: Mapping[str, Any]) -> list[ContainerAllocation]:
    """Create the pod, and wait until the kubelet decides and NodeTopology shows as replay said; what that was."""
    before = node.state()
    pod = node.create_pod(name, {"nodeName": NODE, "terminationGracePeriodSeconds": 1, **spec})
    verdict, after = admit(before, read_pod(pod))
    print(name, verdict.reason or "admitted")
    assert verdict.admitted != (name in REFUSED)
    if verdict.admitted:
        first = spec.get("initContainers", spec["containers"][-1:])[0]["name"]
        node.within_seconds(f"pod {name} runs", lambda: first in _running(node.status(name)))
    else:
        node.within_seconds(f"pod {name} refused", lambda: node.status(name)["phase"] == "Failed")
        status = node.status(name)
        assert (status["reason"], status["message"]) == (verdict.reason, verdict.message)
    expected = _published(after, name)
    node.within_seconds(f"what pod {name} holds", lambda: _published(node.state(), name) == expected)
    return list(allocations(one for one in after.pods if one.name == name))


def _published(state: NodeState, name: str) -> list[PodAllocation]:
    """What pod-resources tells of a pod: it knows no uid, and no init container that is not a sidecar."""
    return [
        replace(pod, uid="", containers=tuple(one for one in pod.containers if not one.init))
        for pod in state.pods
        if pod.name == name
    ]


def _running(status: Mapping[str, Any]) -> dict[str, str]:
    """The ids of a pod's running containers, by name."""
    listed = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return {one["name"]: one["containerID"].partition("://")[2] for one in listed if "running" in one["state"]}


def _confinements(node: Guest) -> dict[str, Confinement]:
    """What the machine's cgroups and processes say, by the last part of the cgroup's path: a container's id."""
    groups = "/sys/fs/cgroup/kubepods/**"
    files_of_group: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for path, text in {**node.vm.read(f"{groups}/cpuset.*"), **node.vm.read(f"{groups}/cgroup.procs")}.items():
        group, name = path.split("/")[-2:]
        files_of_group[group][name] = text.strip()
    processes = {path.split("/")[2]: _allowed(text) for path, text in node.vm.read("/proc/[0-9]*/status").items()}
    return {
        group: Confinement(
            Allowed(files["cpuset.cpus"], files["cpuset.mems"]),
            Allowed(files["cpuset.cpus.effective"], files["cpuset.mems.effective"]),
            frozenset(processes[pid] for pid in files["cgroup.procs"].split() if pid in processes),
        )
        for group, files in files_of_group.items()
        if files.keys() >= FILES  # not so of a container that ends just now
    }


def _allowed(status: str) -> Allowed:
    """The confinement in /proc/PID/status."""
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return Allowed(fields["Cpus_allowed_list"].strip(), fields["Mems_allowed_list"].strip())


def _expected(state: NodeState, allocation: ContainerAllocation) -> Confinement:
    """What a container must find that holds this: its own CPUs or the shared pool, and its own NUMA nodes or all.

    The Memory Manager writes nothing for a container without memory of its own, whose cgroup then inherits.
    """
    cpus = format_id_list(allocation.cpus or shared_pool(state))
    own = format_id_list(functools.reduce(operator.or_, (block.numa_nodes for block in allocation.memory), 0))
    mems = own or format_id_list(mask_of(node.id for node in state.machine.numa_nodes))
    return Confinement(Allowed(cpus, own), Allowed(cpus, mems), frozenset({Allowed(cpus, mems)}))


def _allocation_of(state: NodeState, namespace: str, pod: str, name: str) -> ContainerAllocation:
    """A container's published allocation; an empty one if it is not listed."""
    listed = allocations(one for one in state.pods if (one.namespace, one.name) == (namespace, pod))
    return next((one for one in listed if one.name == name), ContainerAllocation(name))


def _rows(cluster: Cluster) -> Iterator[tuple[str, Confinement, ContainerAllocation, Confinement]]:
    """Every container that runs on the node: its name, what it has, what it holds, what it should have for that.

    An ordinary init container is not published, for the kubelet's pod-resources do not tell it: replay does.
    """
    state, confinements = cluster.node.state(), _confinements(cluster.node)
    for pod in cluster.node.pods():
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        initial = {one.name: one for one in cluster.replayed.get(name, ()) if one.init}
        for container_name, container_id in _running(pod["status"]).items():
            allocation = initial.get(container_name) or _allocation_of(state, namespace, name, container_name)
            expected = _expected(state, allocation)
            yield f"{namespace}/{name}/{container_name}", confinements.get(container_id, NOTHING), allocation, expected


def _assert_confined(cluster: Cluster, containers: set[str]) -> None:
    """Assert that ``containers`` and the agent's are what runs on the node, and have what NodeTopology says.

    Waits, as the kubelet takes up to 10 s to tell the containers of the shared pool what others took or gave back.
    """
    rows: list[tuple[str, Confinement, ContainerAllocation, Confinement]] = []

    def confined() -> bool:
        rows[:] = _rows(cluster)
        running = {name for name, *_ in rows if not name.startswith(f"{AGENT}/")}
        return running == containers and all(actual == expected for _, actual, _, expected in rows)

    try:
        cluster.node.within_seconds("every container has what NodeTopology says", confined)
    finally:
        _print_table(rows)


def _print_table(rows: list[tuple[str, Confinement, ContainerAllocation, Confinement]]) -> None:
    line = "{:<42} {:<12} {:<12} {:<12} {:<12} {}".format
    print(line("CONTAINER", "CPUSET.CPUS", "CPUSET.MEMS", "PROCESS CPUS", "PROCESS MEMS", "NODETOPOLOGY"))
    for name, actual, allocation, expected in rows:
        cpus = format_id_list(allocation.cpus) or f"shared pool {expected.group.cpus}"
        blocks = [f"{block.resource}@{format_id_list(block.numa_nodes)}" for block in allocation.memory]
        processes = actual.processes or NOTHING.processes
        seen = (" ".join({one.cpus for one in processes}), " ".join({one.mems for one in processes}))
        words = (actual.group.cpus, actual.group.mems or "-", *seen)
        print(line(name, *words, " ".join([cpus, *blocks])) + ("" if actual == expected else f" BUT {expected}"))


def test_every_container_is_confined_to_its_published_allocation(cluster: Cluster) -> None:
    _assert_confined(cluster, LASTING | {"default/initialized/prepare"})


def test_alignments_are_those_of_the_containers_cpusets(cluster: Cluster) -> None:
    alignments: dict[str, tuple[str, str]] = {}

    def agreed() -> bool:
        alignments.clear()
        alignments.update(_alignments(cluster))
        return all(actual == published for actual, published in alignments.values())

    try:
        cluster.node.within_seconds("every alignment is that of a cpuset", agreed)
    finally:
        for name, (actual, published) in alignments.items():
            print(f"{name:<42} {actual:<20} {published}")
    assert {"numa-node", "floating", "unpinned"} <= {actual.split()[0] for actual, _ in alignments.values()}


def _alignments(cluster: Cluster) -> Iterator[tuple[str, tuple[str, str]]]:
    """Of each container, its alignment by its cgroup and by what its node publishes, with the NUMA nodes in use.

    A container has CPUs of its own if its cpuset is not the one that most others share.
    """
    state, rows = cluster.node.state(), list(_rows(cluster))
    pool = Counter(actual.group.cpus for _, actual, _, _ in rows).most_common(1)[0][0]
    for name, actual, allocation, _ in rows:
        answer = align_allocation(state, PodAllocation("", "", containers=(allocation,)), allocation)
        published = f"{answer.alignment.value} {format_id_list(answer.numa_nodes)}"
        yield name, (_alignment_of(state.machine, actual.group, pool), published)


def _alignment_of(machine: Machine, group: Allowed, pool: str) -> str:
    if group.cpus == pool and not group.mems:
        return "unpinned "
    cpus = parse_id_list(group.cpus)
    nodes = parse_id_list(group.mems) | mask_of(node for node, its in machine.cpus_of_numa_node.items() if its & cpus)
    sockets = {core.socket for core in machine.cores if nodes >> core.numa_node & 1}
    if nodes.bit_count() == 1:
        word = "numa-node"
    elif group.cpus == pool:
        word = "floating"
    else:
        word = "socket" if len(sockets) == 1 else "split"
    return f"{word} {format_id_list(nodes)}"


def test_containers_that_follow_an_init_container_have_what_it_leaves_them(cluster: Cluster) -> None:
    node = cluster.node
    (container_id,) = _running(node.status("initialized")).values()
    (processes,) = node.vm.read(f"/sys/fs/cgroup/kubepods/**/{container_id}/cgroup.procs").values()
    node.vm.run("kill", *processes.split())
    node.within_seconds("the next containers run", lambda: set(_running(node.status("initialized"))) == FOLLOWING)
    _assert_confined(cluster, LASTING | {f"default/initialized/{name}" for name in FOLLOWING})


def test_cpus_that_a_pod_gives_back_are_shared_again(cluster: Cluster) -> None:
    node = cluster.node
    (allocation,) = cluster.replayed[FREED]
    assert not shared_pool(node.state()) & allocation.cpus
    node.admin.delete(f"{PODS_PATH}/{FREED}")
    node.within_seconds("published as shared", lambda: shared_pool(node.state()) & allocation.cpus == allocation.cpus)
    following = {f"default/initialized/{name}" for name in FOLLOWING}
    _assert_confined(cluster, LASTING - {f"default/{FREED}/main"} | following)
