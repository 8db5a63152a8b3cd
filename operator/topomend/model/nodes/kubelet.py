"""The settings of the kubelet's configuration that admission depends on. Field names are the kubelet's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b

from topomend.model.bitmask import CPUSet
from topomend.model.keeping import Keeping

DEFAULT_VERSION = "v1.37.2"
"""The kubelet version whose rules are replayed for a node of unknown version."""


@dataclass(frozen=True, slots=True)
class MemoryReservation:
    """``reservedMemory`` of one NUMA node and one resource (``memory`` or ``hugepages-*``), in bytes."""

    numa_node: int
    resource: str
    size: int


@dataclass(frozen=True)
class KubeletSettings(Keeping):
    """The managers' policies and reservations. Defaults are the kubelet's (apis/config/v1beta1/defaults.go).

    ``reserved_cpus`` is the set in force (``reservedSystemCPUs``, or the set that pod-resources implies). If it is
    None, the static policy chooses ``reserved_cpu_millis`` (kubeReserved + systemReserved, in thousandths of a CPU)
    rounded up to whole CPUs (cpu_manager.go:NewManager).
    """

    version: str = DEFAULT_VERSION
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    memory_manager_policy: str = "None"
    reserved_cpus: CPUSet | None = None
    reserved_cpu_millis: int = 0
    reserved_memory: tuple[MemoryReservation, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)

    @property
    def policies(self) -> dict[str, str]:
        """The managers' policies and the scope, by their names in the kubelet's configuration."""
        return {
            "topologyManagerPolicy": self.topology_manager_policy,
            "topologyManagerScope": self.topology_manager_scope,
            "cpuManagerPolicy": self.cpu_manager_policy,
            "memoryManagerPolicy": self.memory_manager_policy,
        }

    @cached_property
    def digest(self) -> bytes:
        """A hash that is equal for equal settings, whatever the order of their options."""
        values = [getattr(self, setting.name) for setting in fields(self)]
        ordered = [sorted(value.items()) if isinstance(value, Mapping) else value for value in values]
        return blake2b(repr(ordered).encode(), digest_size=16).digest()
