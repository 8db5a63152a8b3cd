"""The specification of one node of a sandbox: name, machine, offered devices, kubelet settings."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from topomend.model.bitmask import lowest
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import Device
from topomend.model.shapes.shape import parse_shape
from topomend.replay.gates import DEFAULT_MAX_NUMA_NODES, MAX_NUMA_NODES
from topomend.replay.topology.policy_names import NONE
from topomend.sandbox.devices.dra_objects import MAX_DRIVER_NAME, MAX_SLICE_DEVICES, driver_of
from topomend.sandbox.releases.go_modules import minor_of

DEFAULT_RESERVED_MEMORY = 100 << 20
"""Bytes. A static Memory Manager needs a reservation; without one this much of the first NUMA node with memory is
reserved. It equals the kubelet's default eviction threshold, the reservation of a node with default settings."""

FIRST_DRA_MINOR = 34
"""The first minor version that serves resource.k8s.io/v1 and has DynamicResourceAllocation on (KEP-4381)."""

MOST_LISTED_NUMA_NODES = 20
"""A kubelet of 1.37 took 7 seconds for one pod on so many, and twice as long for each further NUMA node
(memorymanager/policy_static.go:calculateHints)."""

_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


class InvalidNodeSpec(ValueError):
    """No kubelet would start on this node. The text names the node, the error and a valid value."""


@dataclass(frozen=True)
class NodeSpec:
    """One node. ``devices`` are those of device plugins, ``claimable`` those that claims provide."""

    name: str
    machine: Machine
    devices: tuple[Device, ...] = ()
    claimable: tuple[Device, ...] = ()
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)

    @classmethod
    def of_shape(cls, name: str, shape: str, **settings: Any) -> "NodeSpec":
        """A node from a one-line shape. ``settings`` are fields of KubeletSettings; both managers default to static.

        Raises InvalidShape for the shape, InvalidNodeSpec for settings with which no kubelet would start.
        """
        parsed = parse_shape(shape)
        return cls.of_machine(name, parsed.machine(), parsed.offered_devices(), parsed.claimable_devices(), **settings)

    @classmethod
    def of_machine(
        cls,
        name: str,
        machine: Machine,
        devices: Iterable[Device] = (),
        claimable: Iterable[Device] = (),
        **settings: Any,
    ) -> "NodeSpec":
        """A node with any machine; see of_shape. By default the first CPU and 100Mi of a NUMA node are reserved.

        Raises InvalidNodeSpec for settings with which no kubelet would start.
        """
        kubelet = KubeletSettings(**{"cpu_manager_policy": "static", "memory_manager_policy": "Static", **settings})
        reserves_none = kubelet.reserved_cpus is None and not kubelet.reserved_cpu_millis
        if kubelet.cpu_manager_policy == "static" and reserves_none and machine.cores:
            kubelet = replace(kubelet, reserved_cpus=1 << lowest(machine.cpus))
        if kubelet.memory_manager_policy == "Static" and not kubelet.reserved_memory:
            kubelet = replace(kubelet, reserved_memory=_default_reservation(machine))
        spec = cls(name, machine, tuple(devices), tuple(claimable), kubelet)
        spec.check()
        return spec

    def check(self) -> None:
        """Raise InvalidNodeSpec for anything that the kubelet would refuse at its start."""
        if not _NAME.fullmatch(self.name):
            raise InvalidNodeSpec(f"node name {self.name!r:.70} is not lower-case letters, digits and dashes")
        if not self.machine.cores:
            raise InvalidNodeSpec(f"node {self.name}: its machine has no online CPU")
        self._check_cpus()
        self._check_memory()
        self._check_claimable()
        self._check_numa_nodes()

    def _check_numa_nodes(self) -> None:
        count, kubelet = len(self.machine.numa_nodes), self.kubelet
        most = kubelet.topology_manager_policy_options.get(MAX_NUMA_NODES, str(DEFAULT_MAX_NUMA_NODES))
        if kubelet.topology_manager_policy != NONE and most.isdigit() and count > int(most):
            raise InvalidNodeSpec(
                f"node {self.name}: under a Topology Manager policy a kubelet starts on at most {most} NUMA nodes, "
                f"and the machine has {count}; set the option {MAX_NUMA_NODES}={count} (--topology-manager-options)"
            )
        if kubelet.memory_manager_policy == "Static" and count > MOST_LISTED_NUMA_NODES:
            raise InvalidNodeSpec(
                f"node {self.name}: for each pod a static Memory Manager lists all sets of the machine's {count} NUMA "
                f"nodes, which takes too long beyond {MOST_LISTED_NUMA_NODES}; choose None (--memory-manager-policy)"
            )

    def _check_cpus(self) -> None:
        reserved = self.kubelet.reserved_cpus or 0
        if reserved & ~self.machine.cpus:
            raise InvalidNodeSpec(f"node {self.name}: a reserved CPU is not among the machine's online CPUs")
        if reserved == self.machine.cpus:
            raise InvalidNodeSpec(f"node {self.name}: every CPU is reserved; leave one for pods (--reserved-cpus)")

    def _check_claimable(self) -> None:
        for resource, count in Counter(device.resource for device in self.claimable).items():
            driver = driver_of(resource)
            if not _DRIVER.fullmatch(driver) or len(driver) > MAX_DRIVER_NAME:
                raise InvalidNodeSpec(
                    f"node {self.name}: {resource[:80]} makes the DRA driver {driver[:80]}, and the name of one is at "
                    f"most {MAX_DRIVER_NAME} lower-case letters, digits, dashes and dots"
                )
            if count > MAX_SLICE_DEVICES:
                raise InvalidNodeSpec(
                    f"node {self.name}: {count} devices {resource} by claim; a ResourceSlice has at most "
                    f"{MAX_SLICE_DEVICES}"
                )
        if self.claimable and minor_of(self.kubelet.version) < FIRST_DRA_MINOR:
            raise InvalidNodeSpec(
                f"node {self.name}: a kubelet {self.kubelet.version} knows no claims by default; dra needs v1."
                f"{FIRST_DRA_MINOR} or newer"
            )

    def _check_memory(self) -> None:
        sizes = {node.id: node.memory for node in self.machine.numa_nodes}
        for reservation in self.kubelet.reserved_memory:
            if reservation.resource != "memory":
                # memory_manager.go:validateReservedMemory wants a kube- or system-reserved amount of the same
                # resource, and cmd/kubelet/app/server.go:parseResourceList knows none for huge pages.
                raise InvalidNodeSpec(
                    f"node {self.name}: the kubelet cannot reserve {reservation.resource}, only memory"
                )
            if reservation.size > sizes.get(reservation.numa_node, -1):
                raise InvalidNodeSpec(
                    f"node {self.name}: NUMA node {reservation.numa_node} has no {reservation.size} bytes to reserve"
                )


def _default_reservation(machine: Machine) -> tuple[MemoryReservation, ...]:
    first = next((node for node in machine.numa_nodes if node.memory), None)
    if first is None:
        raise InvalidNodeSpec("a static Memory Manager needs a NUMA node with memory")
    free = first.memory - sum(pages.size * pages.count for pages in first.hugepages)
    return (MemoryReservation(first.id, "memory", min(DEFAULT_RESERVED_MEMORY, max(free // 2, 1))),)


def fingerprint(spec: NodeSpec) -> str:
    """A hash of the specification, to tell whether another request asks for the same node."""
    return hashlib.sha256(
        repr((spec.name, spec.machine, spec.devices, spec.claimable, spec.kubelet)).encode()
    ).hexdigest()
