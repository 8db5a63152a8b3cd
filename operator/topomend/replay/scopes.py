"""The Topology Manager's scopes: hints and allocation container by container, or hints once for the whole pod.

Owns the order in which hint providers are called: devices, CPUs, memory, as on Linux
(container_manager_linux.go:NewContainerManager). Leaves the merge to ``topology`` and each allocation to its manager.
Source: pkg/kubelet/cm/topologymanager/scope_{none,container,pod}.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from topomend.model.bitmask import NUMAMask, lowest
from topomend.model.pods.pod import Container, Pod
from topomend.model.verdict import Failure, MergeTrace, Preference, ResourceTrace
from topomend.replay import qos
from topomend.replay.cpu import static as cpu_static
from topomend.replay.devices import manager as device_manager
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import Rejection, affinity_error, check_masks, pod_level_affinity_error
from topomend.replay.gates import Gates
from topomend.replay.memory import static as memory_static
from topomend.replay.topology.hints import Answer, Hints, Offer, ResourceOffer
from topomend.replay.topology.merge import Hint, NUMAInfo, TieBreak, first_masks, preferred_masks
from topomend.replay.topology.numa_allocation_strategy import NONE as NO_STRATEGY
from topomend.replay.topology.numa_allocation_strategy import Strategy, score
from topomend.replay.topology.policies import decide
from topomend.replay.topology.policy_names import NONE, SINGLE_NUMA_NODE
from topomend.replay.topology.prefer_most_allocated_numa_node import OPTION as PREFER_MOST_ALLOCATED
from topomend.replay.topology.prefer_most_allocated_numa_node import most_allocated

TRACED_MASKS = 16

NO_AFFINITY = Hint(None, preferred=False)

Manager: TypeAlias = device_manager.DeviceManager | cpu_static.CPUManager | memory_static.MemoryManager


@dataclass(frozen=True)
class Providers:
    """The hint providers. ``cpu`` and ``memory`` are None under policies that allocate nothing exclusively.

    Each of them keeps to ``effort``, and the merge of their hints does.
    """

    devices: device_manager.DeviceManager
    cpu: cpu_static.CPUManager | None
    memory: memory_static.MemoryManager | None
    effort: Effort = UNLIMITED

    def remove_pod(self) -> None:
        """Free the pod's CPUs and memory. Its devices are free once no allocation of the node state names them."""
        if self.cpu:
            self.cpu.remove_pod()
        if self.memory:
            self.memory.remove_pod()

    def managers(self) -> dict[str, Manager]:
        """The managers by the names that offers and failures have, in the order in which the kubelet asks them."""
        managers = {
            device_manager.PROVIDER: self.devices,
            cpu_static.PROVIDER: self.cpu,
            memory_static.PROVIDER: self.memory,
        }
        return {name: manager for name, manager in managers.items() if manager is not None}

    def only(self, name: str) -> "Providers":
        """The manager of that name alone: without the others, which then neither give nor refuse anything."""
        devices = self.devices if name == device_manager.PROVIDER else self.devices.without_devices()
        return replace(
            self,
            devices=devices,
            cpu=self.cpu if name == cpu_static.PROVIDER else None,
            memory=self.memory if name == memory_static.PROVIDER else None,
        )

    def copy(self) -> "Providers":
        """The same managers; an admission by one of the two leaves the other as it is."""
        cpu, memory = self.cpu and self.cpu.copy(), self.memory and self.memory.copy()
        return Providers(self.devices.copy(), cpu, memory, self.effort)

    def lacks(self, pod: Pod) -> set[str]:
        """The resources of which the pod needs more at any one time than is free in all, wherever it is.

        Then no policy admits the pod, whatever else it asks for. Of some resources that is not known.
        """
        return set().union(*(manager.lacks(pod) for manager in self.managers().values()))

    def utilization(self) -> list[dict[int, int]]:
        """The utilization of each NUMA node in percent: one mapping of the CPU Manager, one of the Memory Manager."""
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
    """The outcome: the affinity stored for each container, the trace of each merge, and the refusal, if any."""

    affinities: dict[str, Hint] = field(default_factory=dict)
    merges: list[MergeTrace] = field(default_factory=list)
    failure: Failure | None = None
    rejection: Rejection | None = None


@dataclass(frozen=True)
class Scope:
    """A Topology Manager: its policy, the machine, and its hint providers.

    ``strategy`` decides between affinities that fit equally well (``TopologyOptions``). Without ``traces`` an admission
    says nothing of its merges.
    """

    policy: str
    numa: NUMAInfo
    gates: Gates
    providers: Providers
    strategy: str = NO_STRATEGY
    traces: bool = True

    def admit(self, pod: Pod, scope: str, first: int = 0) -> Admission:
        """Admit the pod under ``scope``, ``container`` or ``pod``. Policy ``none`` uses neither hints nor scope.

        Where containers are admitted one by one, the ``providers`` may stand behind those before number ``first``
        already, which are left out then.
        Raises KubeletBreaks if the admission would crash or hang the kubelet.
        """
        admission = Admission()
        if self.policy == NONE:
            self._allocate_containers(pod, admission, first)
        elif scope == "container":
            self._admit_containers(pod, admission, first)
        else:
            self._admit_pod(pod, admission)
        return admission

    def _admit_containers(self, pod: Pod, admission: Admission, first: int) -> None:
        for container in pod.containers[first:]:
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
            self._allocate_containers(pod, admission)

    def _merge(self, offers: Sequence[ResourceOffer], container: str, admission: Admission) -> bool:
        check_masks(self.numa.nodes)
        answers = [offer.offer for offer in offers]
        hint, admitted = decide(
            self.policy, self.numa, answers, self._tie_break(offers), traced=self.traces, effort=self.providers.effort
        )
        if admitted:
            admission.affinities[container] = hint
        if not self.traces:
            return admitted
        traces = tuple([self._trace(offer) if admitted else self._refused_trace(offer) for offer in offers])
        admission.merges.append(MergeTrace(container, traces, hint.mask, hint.preferred, admitted, self.policy))
        return admitted

    def _trace(self, offer: ResourceOffer) -> ResourceTrace:
        preference, fits = self._described(offer.offer)
        return ResourceTrace(
            offer.provider,
            offer.resource,
            offer.requested,
            offer.free,
            preference,
            fits,
            offer.capacity,
            required=offer.required,
            groups=offer.groups,
            pinned=offer.pinned,
            free_sets=offer.free_sets,
            capacity_sets=offer.capacity_sets,
            error=offer.error,
        )

    def _described(self, offer: Offer) -> tuple[Preference, tuple[tuple[NUMAMask, bool], ...]]:
        if isinstance(offer, Hints):
            masks = first_masks(self.numa, offer, TRACED_MASKS, self.providers.effort)
            return Preference.HINTS, tuple((mask, offer.prefers(mask)) for mask in masks)
        return (Preference.NONE if offer is Answer.NO_PREFERENCE else Preference.IMPOSSIBLE), ()

    def _refused_trace(self, offer: ResourceOffer) -> ResourceTrace:
        """The trace of a resource whose merge was refused: with all that an explanation needs."""
        trace, hints = self._trace(offer), offer.offer
        if not isinstance(hints, Hints):
            return trace
        widest = 1 if self.policy == SINGLE_NUMA_NODE else self.numa.nodes.bit_count()
        preferred = preferred_masks(self.numa, hints, TRACED_MASKS, widest, self.providers.effort)
        return replace(
            trace,
            width=hints.width,
            preferred=preferred.masks,
            preferred_widths=preferred.widths,
            anywhere=preferred.anywhere,
        )

    def _tie_break(self, offers: Sequence[ResourceOffer]) -> TieBreak | Strategy:
        if self.strategy == NO_STRATEGY:
            return min
        if self.strategy == PREFER_MOST_ALLOCATED:
            return lambda masks: 1 << most_allocated(map(lowest, masks), self.providers.utilization())
        managers = self.providers.managers()
        hinted = [offer for offer in offers if isinstance(offer.offer, Hints)]
        scores = [partial(_score, managers[offer.provider], offer.resource) for offer in hinted]
        return Strategy(self.strategy, scores, self.providers.effort)

    def _allocate_containers(self, pod: Pod, admission: Admission, first: int = 0) -> None:
        for container in pod.containers[first:]:
            self._allocate(pod, container, admission)
            if admission.rejection:
                return

    def _allocate(self, pod: Pod, container: Container, admission: Admission) -> None:
        affinity = admission.affinities.get(container.name, NO_AFFINITY)
        providers = self.providers
        rejection = providers.devices.allocate(pod, container, affinity.mask)
        provider = device_manager.PROVIDER
        if rejection is None and providers.cpu:
            provider = cpu_static.PROVIDER
            rejection = providers.cpu.allocate(pod, container, affinity.mask)
        if rejection is None and providers.memory:
            provider = memory_static.PROVIDER
            rejection = providers.memory.allocate(pod, container, affinity)
        _record_rejection(admission, rejection, container.name, provider)

    def _allocate_whole(self, pod: Pod, affinity: Hint, admission: Admission) -> None:
        """Call AllocatePod of each manager. The Device Manager's does nothing: devices are allocated at start."""
        providers = self.providers
        rejection, provider = None, cpu_static.PROVIDER
        if providers.cpu:
            rejection = providers.cpu.allocate_pod(pod, affinity.mask)
        if rejection is None and providers.memory:
            provider = memory_static.PROVIDER
            rejection = providers.memory.allocate_pod(pod, affinity)
        _record_rejection(admission, rejection, "", provider)


def _score(manager: Manager, resource: str, mask: NUMAMask) -> int:
    return score(*manager.usage(resource, mask))


def _record_rejection(admission: Admission, rejection: Rejection | None, container: str, provider: str) -> None:
    if rejection is not None:
        admission.rejection = rejection
        admission.failure = Failure(container, provider, rejection.error)
