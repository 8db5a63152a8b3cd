"""The nodes, pods and merges that the benchmarks measure, as cases of the oracle and as objects of replay."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType

from verify.oracle.cases import node_state
from verify.oracle.kubelet_oracle import Case

from topomend.cache.snapshot import Publication, Snapshot
from topomend.model.bitmask import format_id_list
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.shape import parse_shape
from topomend.replay.admission import admit
from topomend.replay.topology.distances import Distances
from topomend.replay.topology.hints import Family, Hints, Offer, SocketRule, per_node
from topomend.replay.topology.merge import NUMAInfo
from topomend.wire.pods.pod import read_pod

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
NO_GATES: Mapping[str, bool] = MappingProxyType({})

GPU, NIC = "vendor.com/gpu", "vendor.com/nic"

SERVER = f"sockets:2 cores:32 threads:2 memory:256Gi device:{GPU}@0=4,1=4"
"""Two NUMA nodes, 128 CPUs, eight GPUs."""

EIGHT = f"sockets:2 numa:4 cores:8 threads:2 memory:64Gi device:{GPU}@{{each}} device:{NIC}@{{each}}".format(
    each=",".join(f"{node}=2" for node in range(8))
)
SIXTEEN = f"sockets:2 numa:8 cores:4 threads:2 memory:16Gi device:{GPU}@{{each}}".format(
    each=",".join(f"{node}=2" for node in range(16))
)
WIDE = f"sockets:2 numa:17 cores:4 threads:2 memory:16Gi device:{GPU}@{{each}} device:{NIC}@{{each}}".format(
    each=",".join(f"{node}=2" for node in range(34))
)


def case(shape: str, policy: str, pods: Iterable[Case] = (), options: Mapping[str, str] = NO_OPTIONS) -> Case:
    """A node of a shape with its first core and 512Mi of NUMA node 0 reserved, and pods that start and end in turn.

    ``options`` are the Topology Manager's.
    """
    parsed = parse_shape(shape)
    machine = parsed.machine()
    first = next(iter(machine.cores)).threads
    return {
        "machine": {
            "numaNodes": [
                {"id": node.id, "memory": node.memory, "distances": list(node.distances)} for node in machine.numa_nodes
            ],
            "cores": [
                {
                    "threads": format_id_list(core.threads),
                    "socket": core.socket,
                    "numaNode": core.numa_node,
                    "l3Cache": core.l3_cache,
                }
                for core in machine.cores
            ],
        },
        "kubelet": {
            "topologyManagerPolicy": policy,
            "topologyManagerScope": "container",
            "topologyManagerPolicyOptions": dict(options),
            "cpuManagerPolicy": "static",
            "memoryManagerPolicy": "Static",
            "reservedSystemCPUs": format_id_list(first),
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
        },
        "devices": [
            {"resource": device.resource, "id": device.id, "numaNodes": list(device.numa_nodes or ())}
            for device in parsed.offered_devices()
        ],
        "steps": list(coming_and_going(pods)),
    }


def coming_and_going(pods: Iterable[Case], limit: int = 8) -> Iterable[Case]:
    """Admit pods; from ``limit`` running pods on, the oldest ends first."""
    alive: list[Case] = []
    for pod in pods:
        if len(alive) == limit:
            yield {"end": {"namespace": "default", "name": alive.pop(0)["metadata"]["name"]}}
        alive.append(pod)
        yield {"admit": pod}


def pod(name: str, **limits: str | int) -> Case:
    """A Guaranteed pod of one container; ``gpu`` and ``nic`` are short for the devices of the shapes above."""
    named = {{"gpu": GPU, "nic": NIC}.get(resource, resource): str(amount) for resource, amount in limits.items()}
    container = {"name": "c", "image": "none", "resources": {"limits": named}}
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": {"containers": [container]}}


def pod_of_several(name: str, random: Random, containers: int) -> Case:
    """A Guaranteed pod of several containers, some of which fit no NUMA node of ``EIGHT`` or share its devices."""
    made = pod(name)
    made["spec"]["containers"] = [_random_container(f"c{number}", random) for number in range(containers)]
    return made


def _random_container(name: str, random: Random) -> Case:
    limits = {"cpu": str(random.randint(1, 24)), "memory": f"{random.choice((1, 4, 10, 20, 60, 70, 100))}Gi"}
    if random.random() < 0.4:
        limits[GPU] = str(random.randint(1, 4))
    return {"name": name, "image": "none", "resources": {"limits": limits}}


def many_pods(random: Random, count: int) -> list[Case]:
    """Pods of 1 to 24 CPUs, half of them with a GPU or two."""
    pods = []
    for number in range(count):
        gpus = {"gpu": random.randint(1, 2)} if random.random() < 0.5 else {}
        pods.append(pod(f"p{number}", cpu=random.randint(1, 24), memory=f"{random.randint(1, 60)}Gi", **gpus))
    return pods


def half_full(
    shape: str,
    policy: str,
    options: Mapping[str, str] = NO_OPTIONS,
    feature_gates: Mapping[str, bool] = NO_GATES,
) -> NodeState:
    """A node with one pod of a random size for each NUMA node."""
    random = Random(7)
    state = node_state(case(shape, policy, options=options))
    state = replace(state, kubelet=replace(state.kubelet, feature_gates=feature_gates))
    numa_nodes = len(state.machine.numa_nodes)
    for number in range(numa_nodes):
        cpus = random.randint(1, 12 if numa_nodes < 10 else 6)
        state = admit(state, read_pod(pod(f"f{number}", cpu=cpus, memory=f"{random.randint(1, 12)}Gi", gpu=1)))[1]
    return state


def node_states(count: int) -> list[NodeState]:
    """``count`` servers, no two in the same state."""
    random = Random(1)
    state = node_state(case(SERVER, "single-numa-node"))
    states = []
    for number in range(count):
        node = replace(state, name=f"node-{number}", machine=replace(state.machine), kubelet=replace(state.kubelet))
        for pod in many_pods(random, random.randint(2, 7)):
            node = admit(node, read_pod(pod))[1]
        states.append(node)
    return states


def cluster(states: Iterable[NodeState]) -> Snapshot:
    """A snapshot of these nodes. The scheduler would accept a pod on each."""
    nodes, publications = {}, {}
    for state in states:
        resources = dict.fromkeys(("cpu", "memory", "pods", GPU, NIC), 1 << 60)
        nodes[state.name] = Node(state.name, labels={"kubernetes.io/hostname": state.name}, allocatable=resources)
        publications[state.name] = Publication(state, "1")
    return Snapshot(nodes, publications)


def all_masks(numa_nodes: int, resources: int) -> list[Offer]:
    """Every mask for each resource, single NUMA nodes preferred: the hints of an empty machine."""
    return [Hints(masks=tuple(range(1, 1 << numa_nodes)), width=1)] * resources


def contrary_masks(numa_nodes: int, resources: int) -> list[Offer]:
    """Every mask for each resource, none of them preferred by all."""
    masks = tuple(range(1, 1 << numa_nodes))
    return [Hints(masks=masks, width=width) for width in range(1, resources + 1)]


def one_resource_merges() -> Iterator[tuple[str, int, NUMAInfo, list[Offer]]]:
    """One resource on many NUMA nodes: the name, the number of NUMA nodes, and the arguments of the merge."""
    for name, distances in distances_in_classes().items():
        yield f"closest 17 by {name}", 34, NUMAInfo((1 << 34) - 1, distances), any_nodes(17)
    for count in (2, 4):
        sockets = tuple(0b1111 << 4 * socket for socket in range(5))
        family = Family((1 << 20) - 1, (per_node(dict.fromkeys(range(20), 7), 56),))
        yield (
            f"8 that span {count} of 5 sockets",
            20,
            NUMAInfo((1 << 20) - 1),
            [Hints((family,), width=1, sockets=SocketRule(sockets, count))],
        )


def any_nodes(width: int) -> list[Offer]:
    """Any ``width`` of 34 NUMA nodes are equally good."""
    return [Hints((Family((1 << 34) - 1, (), width),), width=width)]


def _distances_by(nearness: Callable[[int, int], int]) -> Distances:
    """The distances of 34 NUMA nodes; 10 from a node to itself, as in the kernel."""
    nodes = range(34)
    return {one: tuple(10 if one == other else nearness(one, other) for other in nodes) for one in nodes}


def distances_in_classes() -> Mapping[str, Distances]:
    """Machines whose NUMA nodes form a few classes of equal distances, as firmware reports them."""
    return {
        "2 sockets": _distances_by(lambda one, other: 12 if one // 17 == other // 17 else 32),
        "boards of 8 in halves": _distances_by(
            lambda one, other: 12 if one // 8 == other // 8 else 21 if one // 16 == other // 16 else 32
        ),
        "2 CPUs with 16 GPUs each": _distances_by(
            lambda one, other: (
                (40 if one % 2 == other % 2 else 80) if min(one, other) < 2 else 120 if one % 2 == other % 2 else 200
            )
        ),
    }


def distances_without_classes() -> Mapping[str, Distances]:
    """Machines whose NUMA nodes form many classes of equal distances, or none."""
    return {
        "sockets of 4 on the corners of a cube": _distances_by(
            lambda one, other: 12 if one // 4 == other // 4 else 11 + 10 * (one // 4 ^ other // 4).bit_count()
        ),
        "a ring": _distances_by(lambda one, other: 10 + 2 * min((one - other) % 34, (other - one) % 34)),
        "a grid": _distances_by(lambda one, other: 10 + 6 * (abs(one % 6 - other % 6) + abs(one // 6 - other // 6))),
    }
