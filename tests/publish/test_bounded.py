"""How large a NodeTopology gets: as the API server stores it, but for managedFields, which it adds itself."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from deploy.manifests import crd_schema
from tests.deploy.schema import complaints

from topomend.cache import changes
from topomend.cache.topology_reader import TopologyReader
from topomend.discover.kubelet_settings import FLAGS_UNSEEN
from topomend.discover.pod_resources.listed_claims import MAX_NODE_CLAIMS
from topomend.model.bitmask import mask_of
from topomend.model.condition import Condition, Summary
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.machine import Core, Hardware, HugePages, Machine, NUMANode, PCIDevice, PCILink
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    NUMANodeMemory,
    PodAllocation,
)
from topomend.model.shapes.shape import parse_shape
from topomend.publish import bounded as rules
from topomend.publish.bounded import bounded, size_of
from topomend.wire.published.claims import read_container_claims
from topomend.wire.published.node_topology import (
    HEARTBEAT,
    MAX_STATUS_BYTES,
    node_topology,
    read_conditions,
    read_node_topology,
    status_of,
)

GIB = 1 << 30
TIME = "2026-01-02T03:04:05Z"
UUID = "5f5f-4b39-8f4e-2f9a36a3b1a1"
SCHEMA = crd_schema("nodetopologies")["properties"]["status"]
KINDS = ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead")
WORDS = ("host, configuration and allocations are known", "", FLAGS_UNSEEN, "")
KNOWN = tuple(Condition(kind, "True", "Read", message) for kind, message in zip(KINDS, WORDS, strict=True))


def written(state: NodeState) -> dict[str, Any]:
    """The object as its agent has it written: within bounds, and with its times."""
    free = ",".join("16" for _ in state.machine.numa_nodes)
    return stored(state.name, bounded(status_of(state, Summary(free, free, len(state.devices), "known"), KNOWN)))


def stored(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = [{**content, "lastTransitionTime": TIME} for content in status["conditions"]]
    made = node_topology(name, {**status, "conditions": conditions, HEARTBEAT: TIME})
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": f"0f3e1a52-{UUID}"}
    metadata = {"uid": f"0f3e1a53-{UUID}", "resourceVersion": "123456789", "generation": 1, "creationTimestamp": TIME}
    return {**made, "metadata": {**made["metadata"], **metadata, "ownerReferences": [owner]}}


def condition(content: Mapping[str, Any], kind: str) -> Condition:
    return next(entry for entry in read_conditions(content) if entry.type == kind)


# A large machine of today


def gpu_server() -> NodeState:
    """2 sockets of 4 NUMA nodes, 256 CPUs, 8 GPUs and 8 network adapters that a plugin offers."""
    shape = "sockets:2 numa:4 cores:16 threads:2 l3:2 memory:768Gi hugepages-2Mi:1024 hugepages-1Gi:4"
    cards = [("GPU", 0x030200, 0x10DE, "NVIDIA Corporation", "GH100 [H100 SXM5 80GB]", "nvidia", "card0")] * 8
    cards += [("mlx5", 0x020700, 0x15B3, "Mellanox Technologies", "MT2910 Family [ConnectX-7]", "mlx5_core", "ib0")] * 8
    pci = tuple(
        PCIDevice(
            f"0000:{16 + index * 8:02x}:00.0", kind, vendor, 0x2330, vendor_name, device_name, driver,
            numa_node=index % 8, numa_source="sysfs", iommu_group=40 + index, names=(name,),
            path=(f"0000:{15 + index * 8:02x}:01.0", f"0000:{13 + index * 8:02x}:00.0"),
            link=PCILink(32.0, 16, 32.0, 16),
        )
        for index, (_, kind, vendor, vendor_name, device_name, driver, name) in enumerate(cards)
    )  # fmt: skip
    machine = parse_shape(shape).machine()
    caches = [core.l3_cache for core in machine.cores]
    l3_caches = tuple(
        mask_of(
            cpu for core in machine.cores if core.l3_cache == cache for cpu in range(256) if core.threads >> cpu & 1
        )
        for cache in dict.fromkeys(caches)
    )
    settings = KubeletSettings(
        topology_manager_policy="single-numa-node",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        memory_manager_policy="Static",
        reserved_cpus=mask_of([0, 1, 128, 129]),
        reserved_cpu_millis=4000,
        reserved_memory=tuple(MemoryReservation(node, "memory", GIB) for node in range(8)),
    )
    devices = tuple(Device(resource, name, (index,)) for index in range(8) for resource, name in device_ids(index))
    machine = replace(machine, pci_devices=pci, hardware=Hardware(l3_caches=l3_caches))
    return NodeState("gpu-01.example.com", machine, settings, devices)


def device_ids(index: int) -> tuple[tuple[str, str], ...]:
    """As the plugins of their vendors name them: a GPU by its UUID, a network adapter by its address."""
    return ("nvidia.com/gpu", f"GPU-{index:08x}-{UUID}"), ("nvidia.com/hostdev", f"0000:{80 + index * 8:02x}:00.0")


def trainer(index: int, *, cores: int, first: int, devices: bool) -> PodAllocation:
    """A pod on one NUMA node with whole cores, memory, and perhaps a GPU and a network adapter."""
    cpus = mask_of([*range(first, first + cores), *range(first + 128, first + 128 + cores)])
    allocations = tuple(DeviceAllocation(resource, (name,)) for resource, name in device_ids(index))
    memory = (MemoryBlock("memory", 1 << index % 8, 6 * GIB),)
    container = ContainerAllocation("main", cpus=cpus, memory=memory, devices=allocations if devices else ())
    name = f"train-llama-worker-7c9d8b6f5d-{index:05d}"
    return PodAllocation("ml-research", name, f"{index:08x}-6c52-{UUID}"[:36], (container,))


def book() -> tuple[NUMANodeMemory, ...]:
    return tuple(NUMANodeMemory(node, 1, 1 << node, {"memory": 84 * GIB}) for node in range(8))


def test_a_server_whose_16_devices_are_all_used_by_pods_takes_at_most_16_kib() -> None:
    """110 pods may run there: those that hold nothing are not written."""
    pods = tuple(trainer(index, cores=12, first=index * 16 + 2, devices=True) for index in range(8))
    content = written(replace(gpu_server(), pods=pods, memory=book(), cpu_pool=mask_of([0, 1, 128, 129])))
    assert list(complaints(content["status"], SCHEMA)) == []
    assert size_of(content) <= 16 << 10


def test_110_pods_that_each_hold_cpus_and_memory_take_a_quarter_of_a_kib_more_each() -> None:
    pods = tuple(trainer(index, cores=1, first=index + 4, devices=False) for index in range(110))
    empty, full = (
        size_of(written(replace(gpu_server(), pods=allocations, memory=book()))) for allocations in ((), pods)
    )
    assert full - empty <= 110 * 256
    assert full <= 40 << 10


def test_what_is_small_enough_is_written_as_it_is() -> None:
    status = status_of(gpu_server(), Summary(), KNOWN)
    assert bounded(status) is status


# Monsters


def monster(*, numa_nodes: int = 256, pods: int = 1024, devices: int = 0, closest: bool = False) -> NodeState:
    """4,096 CPUs, 2,048 PCI devices, and pods with names as long as they can be."""
    per_node = 2048 // numa_nodes
    options = {"max-allowable-numa-nodes": "1024"} | ({"prefer-closest-numa-nodes": "true"} if closest else {})
    nodes = tuple(
        NUMANode(
            node, 64 * GIB, (HugePages(GIB, 7),), tuple(10 if node == other else 254 for other in range(numa_nodes))
        )
        for node in range(numa_nodes)
    )
    cores = tuple(Core(mask_of([core, core + 2048]), core // per_node, core // per_node, core) for core in range(2048))
    pci = tuple(
        PCIDevice(f"0000:{bus:02x}:{slot:02x}.0", 0x020000, 0x8086, 0x1889, "V" * 80, "D" * 80, "ice", bus % 4)
        for bus in range(64)
        for slot in range(32)
    )
    hardware = Hardware(cores=tuple(core.threads for core in cores), l3_caches=tuple(core.threads for core in cores))
    offered = tuple(Device(f"v.com/{number % 200}", f"d-{number}-{'i' * 500}", (0,)) for number in range(devices))
    holding = tuple(
        PodAllocation(
            "n" * 63,
            f"{'p' * 240}-{number}",
            f"{number:08x}-6c52-{UUID}"[:36],
            (ContainerAllocation("main", cpus=mask_of([number, number + 2048])),),
        )
        for number in range(pods)
    )
    settings = KubeletSettings(topology_manager_policy_options=options, cpu_manager_policy="static")
    return NodeState("monster", Machine(nodes, cores, pci_devices=pci, hardware=hardware), settings, offered, holding)


@pytest.mark.parametrize(
    ("state", "cut"),
    [
        (monster(pods=0), "omitted to keep this object small: hardware, 1"),
        (monster(pods=400), "of 2048 PCI devices, distances of 256 NUMA nodes"),
        (monster(pods=300, numa_nodes=64), "hardware, "),
    ],
    ids=["no pods", "400 pods", "64 NUMA nodes"],
)
def test_what_replay_does_not_need_goes_first_and_is_counted(state: NodeState, cut: str) -> None:
    content = written(state)
    assert size_of(content) <= MAX_STATUS_BYTES
    assert list(complaints(content["status"], SCHEMA)) == []
    part = condition(content, "HostDiscovered")
    assert (part.status, part.reason) == ("True", "Truncated")
    assert cut in part.message
    assert condition(content, "Ready").status == "True"
    read = read_node_topology(content)
    assert (read.pods, read.devices, read.machine.cores) == (state.pods, state.devices, state.machine.cores)


def test_claims_go_before_all_else_and_only_as_many_as_must() -> None:
    claims = tuple(
        ContainerClaim("n" * 63, "p" * 253, f"c-{number}", "claim", "gpu.example.com", "a", ("d" * 63, "e" * 63))
        for number in range(1024)
    )
    content = stored("gpu-01", bounded(status_of(gpu_server(), Summary(), KNOWN, claims)))
    assert MAX_STATUS_BYTES - (8 << 10) < size_of(content) <= MAX_STATUS_BYTES
    assert list(complaints(content["status"], SCHEMA)) == []
    part = condition(content, "AllocationsRead")
    left = read_container_claims(content)
    assert left == claims[: len(left)] != ()
    assert (part.status, part.reason) == ("True", "Truncated")
    assert part.message == (
        f"omitted to keep this object small: {len(claims) - len(left)} of {len(claims)} claims of containers"
    )
    assert condition(content, "HostDiscovered").reason == "Read"
    assert condition(content, "Ready").status == "True"


def test_distances_that_replay_needs_are_kept_while_pods_can_be() -> None:
    content = written(monster(pods=300, closest=True))
    assert condition(content, "HostDiscovered").reason == "Truncated"
    assert read_node_topology(content).machine.numa_nodes == monster().machine.numa_nodes


@pytest.mark.parametrize(
    ("state", "kind", "missing"),
    [
        (monster(pods=1024, closest=True), "AllocationsRead", "of 1024 pods that hold something"),
        (monster(pods=1100, numa_nodes=2), "AllocationsRead", "of 1100 pods that hold something"),
        (
            monster(pods=10, devices=2000),
            "AllocationsRead",
            "10 of 10 pods that hold something, devices of 200 resources",
        ),
        (
            monster(pods=0, numa_nodes=512, closest=True),
            "HostDiscovered",
            "the machine of 512 NUMA nodes and 2048 cores",
        ),
    ],
    ids=["1024 pods", "1100 pods", "2000 devices", "512 NUMA nodes"],
)
def test_where_replay_would_miss_something_the_node_is_not_ready_and_nobody_guesses(
    state: NodeState, kind: str, missing: str
) -> None:
    content = written(state)
    assert size_of(content) <= MAX_STATUS_BYTES
    assert list(complaints(content["status"], SCHEMA)) == []
    part, ready = condition(content, kind), condition(content, "Ready")
    assert (part.status, part.reason) == (ready.status, ready.reason) == ("False", "TooLarge")
    assert missing in part.message
    assert missing in ready.message
    assert "so replay cannot predict this kubelet" in content["status"]["summary"]["status"]


def test_what_was_wrong_before_stays_the_reason() -> None:
    before = (
        Condition("Ready", "False", "Invalid", "no"),
        Condition("AllocationsRead", "False", "Inconsistent", "two"),
    )
    status = status_of(monster(pods=1100, numa_nodes=2), Summary(), before)
    part = condition(stored("monster", bounded(status)), "AllocationsRead")
    assert (part.status, part.reason) == ("False", "Inconsistent")
    assert part.message.endswith("; two")


def test_the_bounds_are_those_of_the_schema() -> None:
    def most(*path: str) -> int:
        place = SCHEMA
        for field in path:
            place = place["properties"][field]
        return int(place["maxItems"])

    assert most("pods") == rules.MAX_PODS
    assert most("devices") == rules.MAX_RESOURCES
    assert most("claims") == MAX_NODE_CLAIMS
    assert most("machine", "numaNodes") == rules.MAX_NUMA_NODES
    assert most("machine", "cores") == rules.MAX_CORES


def test_a_reader_of_all_nodes_takes_what_was_cut_for_not_known() -> None:
    change = TopologyReader().published(written(monster(pods=1100, numa_nodes=2)), datetime(2026, 1, 2, tzinfo=UTC))
    assert isinstance(change, changes.Published)
    assert change.problem.startswith("its agent says TooLarge: there is no room for ")
