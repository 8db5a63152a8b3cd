"""What a kubelet publishes as its node's allocatable amounts: the machine without what is set aside.

Source: pkg/kubelet/nodestatus/setters.go:MachineInfo, cadvisor/util.go:CapacityFromMachineInfo,
cm/node_container_manager_linux.go:GetNodeAllocatableReservation, cm/devicemanager/manager.go:GetCapacity.
"""

from collections import Counter
from collections.abc import Mapping

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState
from topomend.model.quantity import MilliQuantity
from topomend.replay.lifecycle.predicate import CPU, MEMORY, PODS

MAX_PODS = 110
"""The kubelet's default (apis/config/v1beta1/defaults.go)."""

DEFAULT_EVICTION = 100 << 20
"""Bytes of ``evictionHard`` memory.available where nothing is configured (apis/config/v1beta1/defaults_linux.go)."""


def node_allocatable(state: NodeState, set_aside: int = DEFAULT_EVICTION) -> Mapping[str, MilliQuantity]:
    """The amounts of CPUs, memory, huge pages, devices and pods, in thousandths; storage is not known.

    The settings know the reserved memory by the Memory Manager, which does not start unless ``reservedMemory`` is all
    that is set aside. Without one ``set_aside`` bytes count, by default the kubelet's own eviction threshold.
    """
    pages: Counter[str] = Counter()
    for node in state.machine.numa_nodes:
        for pool in node.hugepages:
            pages[pool.resource] += pool.size * pool.count
    devices = {device.resource: 0 for device in state.devices} | Counter(
        device.resource for device in state.devices if device.healthy
    )
    memory = (
        sum(node.memory for node in state.machine.numa_nodes)
        - _reserved_memory(state.kubelet, set_aside)
        - sum(pages.values())
    )
    cpus = state.machine.cpus.bit_count() * 1000 - reserved_cpu_millis(state.kubelet)
    amounts = {MEMORY: max(0, memory), PODS: MAX_PODS, **pages, **devices}
    return {CPU: max(0, cpus), **{resource: amount * 1000 for resource, amount in amounts.items()}}


def reserved_cpu_millis(kubelet: KubeletSettings) -> int:
    """The CPUs that are set aside, in thousandths: a list of CPUs counts whole (cmd/kubelet/app/server.go:run)."""
    return kubelet.reserved_cpu_millis or (kubelet.reserved_cpus or 0).bit_count() * 1000


def _reserved_memory(kubelet: KubeletSettings, set_aside: int) -> int:
    if not knows_reserved_memory(kubelet):
        return set_aside
    return sum(reservation.size for reservation in kubelet.reserved_memory if reservation.resource == MEMORY)


def knows_reserved_memory(kubelet: KubeletSettings) -> bool:
    """Whether the settings tell all the memory that is set aside."""
    return kubelet.memory_manager_policy == "Static" and bool(kubelet.reserved_memory)
