"""Compute the features of a node that labels and rules select it by.

Owns which facts are features: those that stay as long as nobody reboots the node, changes its kubelet's configuration
or plugs a device in. What pods take changes all the time, and is no feature. Leaves their layout to
``wire.published.node_feature``.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from topomend.model.machine import Machine, NUMANode, PCIDevice
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_features import NodeFeatures
from topomend.model.nodes.node_state import NodeState

KUBELET, NUMA_NODES, PCI = "topomend.kubelet", "topomend.numa-node", "topomend.pci"

MAX_DEVICES = 1000
"""The most PCI functions that are features: some 200 bytes each, of the 1.5 MB that etcd stores of an object."""

KINDS = ("accelerator", "network", "storage")


def node_features(state: NodeState, *, is_ready: bool) -> NodeFeatures:
    """The features of a node. Those of its kubelet are known only while it is Ready."""
    devices = tuple(_devices(state.machine))
    kinds = Counter((device.numa_node, device.kind) for device in devices)
    labels = {"topology-ready": str(is_ready).lower(), **_labels_of_machine(state.machine)}
    if is_ready:
        labels |= _labels_of_kubelet(state.kubelet)
    return NodeFeatures(
        labels=labels,
        attributes={KUBELET: kubelet_attributes(state.kubelet)} if is_ready else {},
        instances={
            NUMA_NODES: tuple(_numa_node(node, state.machine, kinds) for node in state.machine.numa_nodes),
            PCI: tuple(map(_device, devices[:MAX_DEVICES])),
        },
    )


def kubelet_attributes(settings: KubeletSettings) -> dict[str, str]:
    """The kubelet's version, and the settings of its managers by their names in its configuration.

    Options are ``topologyManagerPolicyOptions.`` or ``cpuManagerPolicyOptions.`` with the option's name.
    """
    attributes = {"version": settings.version, **settings.policies}
    for field, options in (
        ("topologyManagerPolicyOptions", settings.topology_manager_policy_options),
        ("cpuManagerPolicyOptions", settings.cpu_manager_policy_options),
    ):
        attributes |= {f"{field}.{option}": text for option, text in options.items()}
    return attributes


def _labels_of_kubelet(settings: KubeletSettings) -> dict[str, str]:
    return {
        "topology-manager-policy": settings.topology_manager_policy,
        "topology-manager-scope": settings.topology_manager_scope,
        "cpu-manager-policy": settings.cpu_manager_policy,
        "memory-manager-policy": settings.memory_manager_policy,
    }


def _labels_of_machine(machine: Machine) -> dict[str, str]:
    """The number of NUMA nodes but those of a GPU's memory, and of CPUs of each where they have equally many."""
    labels = {"numa-nodes": str(sum(not node.gpu for node in machine.numa_nodes))}
    counts = {cpus.bit_count() for cpus in machine.cpus_of_numa_node.values() if cpus}
    if len(counts) == 1:
        labels["cpus-per-numa-node"] = str(counts.pop())
    return labels


def _numa_node(node: NUMANode, machine: Machine, devices: Mapping[tuple[int | None, str], int]) -> Mapping[str, str]:
    """One NUMA node: CPUs and PCI devices are counts, memory and huge pages bytes. ``devices`` by node and kind."""
    return {
        "id": str(node.id),
        "cpus": str(machine.cpus_of_numa_node.get(node.id, 0).bit_count()),
        "memory": str(node.memory),
        **{pool.resource: str(pool.size * pool.count) for pool in node.hugepages},
        **{kind: str(devices.get((node.id, kind), 0)) for kind in KINDS},
        **({"gpu": node.gpu} if node.gpu else {}),
    }


def _devices(machine: Machine) -> Iterator[PCIDevice]:
    """The PCI functions that a rule may ask for. Virtual functions come and go as somebody sets their number."""
    return (device for device in machine.pci_devices if device.kind in KINDS and not device.physical_function)


def _device(device: PCIDevice) -> Mapping[str, str]:
    """One PCI function. Numbers are hexadecimal without a prefix, as those of NFD's own ``pci.device``."""
    return {
        "address": device.address,
        "kind": device.kind,
        "class": f"{device.pci_class >> 8:04x}",
        "vendor": f"{device.vendor_id:04x}",
        "device": f"{device.device_id:04x}",
        "sriov_totalvfs": str(device.max_virtual_functions),
        **({"driver": device.driver} if device.driver else {}),
        **({} if device.numa_node is None else {"numa-node": str(device.numa_node)}),
    }
