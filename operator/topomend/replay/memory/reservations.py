"""What ``reservedMemory`` leaves of each NUMA node.

Source: pkg/kubelet/cm/memorymanager/policy_static.go:getDefaultMachineState.
"""

from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings


def unreserved(settings: KubeletSettings, machine: Machine) -> dict[int, dict[str, int]]:
    """The bytes of memory and of each size of huge pages that are not reserved, by NUMA node and resource.

    They are negative where more is reserved than there is, or where huge pages take more than the memory.
    """
    reserved = {(each.numa_node, each.resource): each.size for each in settings.reserved_memory}
    left: dict[int, dict[str, int]] = {}
    for node in machine.numa_nodes:
        totals = {pages.resource: pages.size * pages.count for pages in node.hugepages}
        totals["memory"] = node.memory - sum(totals.values())
        left[node.id] = {resource: total - reserved.get((node.id, resource), 0) for resource, total in totals.items()}
    return left


def is_over_reserved(unreserved_of_node: dict[str, int]) -> bool:
    """Whether more is reserved on a NUMA node than it has."""
    return min(unreserved_of_node.values()) < 0
