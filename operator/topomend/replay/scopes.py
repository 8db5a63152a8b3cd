"""The Topology Manager's scopes: hints and allocation container by container, or hints once for the whole pod.

Source: pkg/kubelet/cm/topologymanager/scope_{none,container,pod}.go. Providers are asked in the kubelet's order on
Linux: devices, CPUs, memory (container_manager_linux.go:NewContainerManager).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from topomend.model.bitmask import NUMAMask, lowest, members
from topomend.model.pod import Container, Pod
from topomend.model.verdict import Failure, MergeTrace, Preference, ResourceTrace
from topomend.replay import qos
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices import manager as device_manager
from topomend.replay.errors import Rejection, affinity_error, check_masks, pod_level_affinity_error
from topomend.replay.gates import Gates
from topomend.replay.memory import static as memory_static
from topomend.replay.topology.hints import Answer, Hints, Offer, ResourceOffer
from topomend.replay.topology.merge import Hint, NUMAInfo, first_masks
from topomend.replay.topology.policies import NONE, decide
from topomend.replay.topology.prefer_most_allocated_numa_node import most_allocated

TRACED_MASKS = 16

NO_AFFINITY = Hint(None, preferred=False)


@dataclass(frozen=True)
class Providers:
    """The managers that give hints; the CPU and Memory Manager only where their policies pin something."""

    devices: device_manager.DeviceManager
    cpu: cpu_static.CPUManager | None
    memory: memory_static.MemoryManager | None

    def remove_pod(self) -> None:
        """Take back what the pod holds of CPUs and memory; devices are held by record alone."""
        if self.cpu:
            self.cpu.remove_pod()
        if self.memory:
            self.memory.remove_pod()

    def utilization(self) -> list[dict[int, int]]:
        """How full each NUMA node is, by each manager that pins: of CPUs and of memory."""
        return [manager.utilization() for manager in (self.cpu, self.memory) if manager]

    def hints(self, pod: Pod, container: Container) -> list[ResourceOffer]:
        """All offers for a container."""
        offers = self.devices.hints(container)
        offers += self.cpu.hints(pod, container) if self.cpu else []
        offers += self.memory.hints(pod, container) if self.memory else []
        return offers

    def pod_hints(self, pod: Pod) -> list[ResourceOffer]:
        """All offers for the whole pod."""
        offers = self.devices.pod_hints(pod)
        offers += self.cpu.pod_hints(pod) if self.cpu else []
        offers += self.memory.pod_hints(pod) if self.memory else []
        return offers


@dataclass
class Admission:
    """What came of asking: the affinity stored for each container, the trace, and the refusal if there was one."""

    affinities: dict[str, Hint] = field(default_factory=dict)
    merges: list[MergeTrace] = field(default_factory=list)
    failure: Failure | None = None
    rejection: Rejection | None = None


@dataclass(frozen=True)
class Scope:
    """One Topology Manager: its policy over the machine, and the managers behind it.

    ``prefer_most_allocated`` is the option of that name.
    """

    policy: str
    numa: NUMAInfo
    gates: Gates
    providers: Providers
    prefer_most_allocated: bool = False

    def admit(self, pod: Pod, scope: str) -> Admission:
        """Admit the pod under ``scope``, ``container`` or ``pod``; policy ``none`` has neither hints nor scope."""
        admission = Admission()
        if self.policy == NONE:
            self._allocate_each(pod, admission)
        elif scope == "container":
            self._admit_containers(pod, admission)
        else:
            self._admit_pod(pod, admission)
        return admission

    def _admit_containers(self, pod: Pod, admission: Admission) -> None:
        for container in pod.containers:
            if not self._merge(self.providers.hints(pod, container), container.name, admission):
                admission.rejection = (
                    pod_level_affinity_error(
                        "pod with pod-level resources failed admission with a container-level topology manager"
                    )
                    if qos.uses_pod_level_managers(pod, self.gates)
                    else affinity_error()
                )
            else:
                self._allocate(pod, container, admission)
            if admission.rejection:
                return

    def _admit_pod(self, pod: Pod, admission: Admission) -> None:
        admitted = self._merge(self.providers.pod_hints(pod), "", admission)
        whole_pod = qos.uses_pod_level_managers(pod, self.gates)
        if not admitted:
            admission.rejection = (
                pod_level_affinity_error(
                    "pod with pod-level resources failed admission under pod-scope topology manager"
                )
                if whole_pod
                else affinity_error()
            )
            return
        affinity = admission.affinities.pop("")
        admission.affinities.update(dict.fromkeys((container.name for container in pod.containers), affinity))
        if whole_pod:
            self._allocate_whole(pod, affinity, admission)
        else:
            self._allocate_each(pod, admission)

    def _merge(self, offers: Sequence[ResourceOffer], container: str, admission: Admission) -> bool:
        check_masks(self.numa.nodes)
        hint, admitted = decide(self.policy, self.numa, [offer.offer for offer in offers], self._tie_break)
        if admitted:
            admission.affinities[container] = hint
        traces = tuple(map(_trace, offers))
        admission.merges.append(MergeTrace(container, traces, hint.mask, hint.preferred, admitted))
        return admitted

    def _tie_break(self, nodes: NUMAMask) -> int:
        return (
            most_allocated(members(nodes), self.providers.utilization())
            if self.prefer_most_allocated
            else lowest(nodes)
        )

    def _allocate_each(self, pod: Pod, admission: Admission) -> None:
        for container in pod.containers:
            self._allocate(pod, container, admission)
            if admission.rejection:
                return

    def _allocate(self, pod: Pod, container: Container, admission: Admission) -> None:
        affinity = admission.affinities.get(container.name, NO_AFFINITY)
        providers = self.providers
        refused = providers.devices.allocate(pod, container, affinity.mask)
        provider = device_manager.PROVIDER
        if refused is None and providers.cpu:
            provider = cpu_static.PROVIDER
            refused = providers.cpu.allocate(pod, container, affinity.mask)
        if refused is None and providers.memory:
            provider = memory_static.PROVIDER
            refused = providers.memory.allocate(pod, container, affinity)
        _note(admission, refused, container.name, provider)

    def _allocate_whole(self, pod: Pod, affinity: Hint, admission: Admission) -> None:
        """AllocatePod of each manager; that of devices does nothing, they are taken as containers start."""
        providers = self.providers
        refused, provider = None, cpu_static.PROVIDER
        if providers.cpu:
            refused = providers.cpu.allocate_pod(pod, affinity.mask)
        if refused is None and providers.memory:
            provider = memory_static.PROVIDER
            refused = providers.memory.allocate_pod(pod, affinity)
        _note(admission, refused, "", provider)


def _note(admission: Admission, refused: Rejection | None, container: str, provider: str) -> None:
    if refused is not None:
        admission.rejection = refused
        admission.failure = Failure(container, provider, refused.error)


def _trace(offer: ResourceOffer) -> ResourceTrace:
    preference, fits = _described(offer.offer)
    return ResourceTrace(offer.provider, offer.resource, offer.requested, offer.free, preference, fits)


def _described(offer: Offer) -> tuple[Preference, tuple[tuple[NUMAMask, bool], ...]]:
    if isinstance(offer, Hints):
        return Preference.HINTS, tuple((mask, offer.prefers(mask)) for mask in first_masks(offer, TRACED_MASKS))
    return (Preference.NONE if offer is Answer.NO_PREFERENCE else Preference.IMPOSSIBLE), ()
