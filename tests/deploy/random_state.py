"""Random nodes, from plain ones to absurd ones: every field that a NodeTopology can carry is set in some of them."""

import random

from topomend.model.bitmask import mask_of, members
from topomend.model.condition import Condition, Summary
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.machine import Core, CoreKind, Hardware, HugePages, Machine, NUMANode, PCIDevice, PCILink
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

_RESOURCES = ("vendor.com/gpu", "vendor.com/nic", f"{'x' * 253}/{'y' * 63}")
_MEMORY = ("memory", "hugepages-2Mi", "hugepages-1Gi")


def random_state(rng: random.Random) -> NodeState:
    """A node of up to 8 NUMA nodes and 256 CPUs."""
    machine = _machine(
        rng, numa_nodes=rng.randint(1, 8), cores=rng.choice((0, 1, 4, 16)), threads=rng.choice((1, 2)), pci=16
    )
    return _state(rng, machine, devices=16, pods=12)


def monster(rng: random.Random) -> NodeState:
    """As large as a node ever is: 64 NUMA nodes, 4096 CPUs, 512 PCI devices, 1024 pods."""
    machine = _machine(rng, numa_nodes=64, cores=32, threads=2, pci=512)
    return _state(rng, machine, devices=512, pods=1024)


def random_summary(rng: random.Random) -> Summary:
    """A summary as the columns show it."""
    return Summary(cpus_free="8,52", memory_free="18Gi,512Mi", devices=rng.randint(0, 16), status="what is missing")


def random_claims(rng: random.Random) -> list[ContainerClaim]:
    """With names as long as the agent leaves them, and one without any."""
    long = ContainerClaim("n" * 63, "p" * 253, "c" * 253, "c" * 253, "d" * 63, "p" * 253, ("d" * 63,) * 64)
    return [long, ContainerClaim("default", "p", "c", "", "", "", ("",))] * rng.randint(0, 2)


def random_conditions(rng: random.Random) -> list[Condition]:
    """The four conditions of a node, each in any state."""
    return [
        Condition(condition_type, rng.choice(("True", "False", "Unknown")), "SomeReason", rng.choice(("", "in words")))
        for condition_type in ("Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead")
    ]


def _machine(rng: random.Random, *, numa_nodes: int, cores: int, threads: int, pci: int) -> Machine:
    """``cores`` is per NUMA node; none is a machine whose first NUMA node alone has one."""
    places = [node for node in range(numa_nodes) for _ in range(cores)] or [0]
    knows_caches = rng.random() < 0.8
    return Machine(
        numa_nodes=tuple(
            NUMANode(
                id=node,
                memory=rng.choice((0, 64 << 30, 6 << 40)),
                hugepages=tuple(
                    HugePages(1 << shift, rng.randint(0, 1 << 20), rng.choice((None, 7))) for shift in (21, 30)
                ),
                distances=tuple(10 if node == other else 32 for other in range(numa_nodes)),
                gpu=rng.choice(("", "0009:01:00.0")),
            )
            for node in range(numa_nodes)
        ),
        cores=tuple(
            Core(
                mask_of(core + thread * len(places) for thread in range(threads)),
                node,
                node,
                node * 3 if knows_caches else None,
            )
            for core, node in enumerate(places)
        ),
        offline=rng.choice((0, mask_of((5000, 5002)))),
        isolated=rng.choice((0, mask_of((0,)))),
        pci_devices=tuple(_pci(rng, index, numa_nodes) for index in range(rng.randint(0, pci))),
        hardware=rng.choice((Hardware(), _hardware(len(places), threads))),
    )


def _hardware(cores: int, threads: int) -> Hardware:
    by_core = tuple(mask_of(core + thread * cores for thread in range(threads)) for core in range(cores))
    every = mask_of(range(cores * threads))
    return Hardware(
        cores=by_core,
        sockets=(every,),
        dies=by_core,
        clusters=by_core,
        l3_caches=by_core,
        core_kinds=(CoreKind(every, "core", 1024), CoreKind(1), CoreKind(1, "lowpower")),
        nohz_full=1,
        reserved_hugepages=(HugePages(1 << 21, 3),),
    )


def _pci(rng: random.Random, index: int, numa_nodes: int) -> PCIDevice:
    plain = PCIDevice(f"{index >> 8:04x}:{index & 255:02x}:1f.7", 0x030200, 0x10DE, index)
    if rng.random() < 0.3:
        return plain
    return PCIDevice(
        address=plain.address,
        pci_class=0x020000,
        vendor_id=0,
        device_id=0xFFFF,
        vendor_name="A Vendor, Inc.",
        device_name="A Device [Rev. 1]",
        driver="some_driver",
        numa_node=rng.randrange(numa_nodes),
        numa_source="sysfs",
        path=("0000:00:01.0", "10000:01:00.0"),
        iommu_group=rng.randint(0, 4096),
        physical_function="0000:00:1f.0",
        virtual_functions=rng.choice((0, 8)),
        max_virtual_functions=rng.choice((0, 64)),
        link=PCILink(speed=rng.choice((2.5, 16.0)), width=16, max_speed=64.0, max_width=16),
        names=("eth0", "mlx5_0"),
    )


def _state(rng: random.Random, machine: Machine, *, devices: int, pods: int) -> NodeState:
    ids = [node.id for node in machine.numa_nodes]
    return NodeState(
        name="node-1",
        machine=machine,
        kubelet=_kubelet(rng, ids),
        devices=tuple(
            Device(
                resource,
                f"device-{index}",
                rng.choice((None, (), (-1,), (rng.choice(ids),), tuple(ids))),
                healthy=rng.random() < 0.9,
            )
            for resource in _RESOURCES
            for index in range(rng.randint(0, devices))
        ),
        pods=tuple(_pod(rng, index, machine) for index in range(rng.randint(0, pods))),
        memory=None if rng.random() < 0.3 else tuple(_book(rng, node, ids) for node in ids),
        cpu_pool=rng.choice((None, 0, machine.cpus)),
    )


def _kubelet(rng: random.Random, ids: list[int]) -> KubeletSettings:
    if rng.random() < 0.2:
        return KubeletSettings()
    return KubeletSettings(
        version="v1.36.3-vendor.1+0123456789abcdef",
        topology_manager_policy=rng.choice(("none", "best-effort", "restricted", "single-numa-node")),
        topology_manager_scope=rng.choice(("container", "pod")),
        topology_manager_policy_options={"max-allowable-numa-nodes": "16"},
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        memory_manager_policy=rng.choice(("None", "Static")),
        reserved_cpus=rng.choice((None, 0, mask_of((0, 2)))),
        reserved_cpu_millis=rng.choice((0, 1500)),
        reserved_memory=tuple(MemoryReservation(node, resource, 512 << 20) for node in ids for resource in _MEMORY[:2]),
        feature_gates={"CPUManagerPolicyAlphaOptions": rng.random() < 0.5},
    )


def _pod(rng: random.Random, index: int, machine: Machine) -> PodAllocation:
    return PodAllocation(
        namespace="n" * rng.randint(1, 63),
        name=f"{'p' * rng.randint(1, 240)}-{index}",
        uid=rng.choice(("", "0f3e1a52-6c52-4d5c-9c3f-1f9c0d8f7b11")),
        containers=tuple(
            ContainerAllocation(
                name=name,
                init=rng.random() < 0.3,
                cpus=mask_of(rng.sample(list(members(machine.cpus)), 1)) if rng.random() < 0.7 else 0,
                memory=tuple(
                    MemoryBlock(resource, mask_of((rng.choice(machine.numa_nodes).id,)), 1 << 30)
                    for resource in rng.sample(_MEMORY, rng.randint(0, 2))
                ),
                devices=tuple(
                    DeviceAllocation(resource, ("device-0", "device-1")) for resource in _RESOURCES[: rng.randint(0, 2)]
                ),
            )
            for name in ("main", "sidecar")[: rng.randint(0, 2)]
        ),
        cpus=rng.choice((0, machine.cpus)),
        memory=tuple(
            MemoryBlock(resource, mask_of((rng.choice(machine.numa_nodes).id,)), 1 << 30)
            for resource in rng.sample(_MEMORY, rng.randint(0, 2))
        ),
    )


def _book(rng: random.Random, node: int, ids: list[int]) -> NUMANodeMemory:
    return NUMANodeMemory(
        numa_node=node,
        assignments=rng.randint(0, 3),
        cells=mask_of(rng.choice(((node,), ids))),
        reserved=dict.fromkeys(_MEMORY, 1 << 30) if rng.random() < 0.7 else {},
    )
