"""The CPU Manager's static policy: which containers get exclusive CPUs, the hints for them, and their allocation.

Leaves the choice of CPUs from a set to ``assignment``. Source: pkg/kubelet/cm/cpumanager/policy_static.go. In its
words the ``reserved`` CPUs serve the system, the ``pool`` is shared by all containers without exclusive CPUs, and the
``assigned`` CPUs are exclusive.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from topomend.model.bitmask import CPUSet, NUMAMask, format_id_list, lowest, mask_of, members
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.pods.pod import Container, ContainerKind, Pod, largest_need
from topomend.model.quantity import MAX_INT64, is_whole, value
from topomend.replay import qos
from topomend.replay.cpu.assignment import AssignmentError, Strategy, take
from topomend.replay.cpu.options import StaticOptions, check_machine, read_options
from topomend.replay.cpu.topology import CPUTopology
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import Rejection, empty_pod_shared_pool, smt_alignment, unexpected
from topomend.replay.gates import Gates
from topomend.replay.options import InvalidOption
from topomend.replay.topology.hints import (
    Answer,
    Family,
    Hints,
    Offer,
    ResourceOffer,
    SocketRule,
    hints_or,
    per_node,
    touching,
)
from topomend.replay.topology.merge import least_width
from topomend.replay.topology.prefer_most_allocated_numa_node import utilization
from topomend.replay.topology.walk_time import check_list

PROVIDER = "cpu"


@dataclass(frozen=True)
class StaticPolicy:
    """The policy's constants while the kubelet runs.

    ``reserved_physical`` are the reserved CPUs and the other threads of their cores.
    """

    topology: CPUTopology
    options: StaticOptions
    gates: Gates
    reserved: CPUSet
    reserved_physical: CPUSet

    @property
    def strategy(self) -> Strategy:
        """The options for ``assignment.take`` (policy_static.go:takeByTopology)."""
        return _strategy(self.options, self.topology, self.gates)

    def strategy_for(self, affinity: NUMAMask | None) -> Strategy:
        """The options for CPUs of an affinity's NUMA nodes."""
        if affinity is None or not self.gates.spreads_like_hint:
            return self.strategy
        return replace(self.strategy, least_nodes=affinity.bit_count())

    @property
    def pool(self) -> CPUSet:
        """The shared pool of the empty node; reserved CPUs are part of it unless strict-cpu-reservation is on."""
        return self.topology.cpus & ~self.reserved if self.options.strict_reservation else self.topology.cpus


def start(settings: KubeletSettings, topology: CPUTopology, topology_manager_policy: str, gates: Gates) -> StaticPolicy:
    """Start the policy. Raises InvalidOption with the kubelet's text if the kubelet would not start.

    Source: cpu_manager.go:NewManager, policy_static.go:NewStaticPolicy.
    """
    count = settings.reserved_cpus.bit_count() if settings.reserved_cpus else -(-settings.reserved_cpu_millis // 1000)
    if count <= 0:
        raise InvalidOption("[cpumanager] unable to determine reserved CPU resources for static policy")
    try:
        options = read_options(settings.cpu_manager_policy_options, gates)
        check_machine(options, topology, topology_manager_policy)
        reserved = settings.reserved_cpus or _take_reserved(topology, count, options, gates)
        _check_reserved_ids(reserved, topology)
    except InvalidOption as error:
        raise InvalidOption(f"new static policy error: {error}") from error
    return StaticPolicy(topology, options, gates, reserved, topology.siblings(reserved))


def _check_reserved_ids(reserved: CPUSet, topology: CPUTopology) -> None:
    unknown = reserved & ~topology.cpus
    if unknown:
        raise InvalidOption(
            "[cpumanager] unable to build the reserved physical CPUs from the reserved set: "
            f"unknown CPU ID: {lowest(unknown)}"
        )


def _strategy(options: StaticOptions, topology: CPUTopology, gates: Gates) -> Strategy:
    group = (topology.cpus_per_core if options.full_pcpus_only else 1) if options.distribute_across_numa else None
    return replace(
        rules_of(gates),
        spread=options.distribute_across_cores,
        uncore_cache=options.prefer_uncore_cache,
        group=group,
        by_socket=gates.bounded_distribution and options.align_by_socket,
    )


def rules_of(gates: Gates) -> Strategy:
    """What the kubelet's version alone decides, without any option."""
    return Strategy(
        started_cores=gates.cache_takes_started_cores,
        bounded=gates.bounded_distribution,
        own_sizes=gates.compares_own_sizes,
        over_cores=gates.spreads_over_cores,
        whole_caches_first=gates.takes_whole_caches_first,
        apart=gates.keeps_combinations,
        whole_groups=gates.remainder_in_groups,
    )


def _take_reserved(topology: CPUTopology, count: int, options: StaticOptions, gates: Gates) -> CPUSet:
    taken = take(topology, topology.cpus, count, _strategy(options, topology, gates))
    cpus = 0 if isinstance(taken, AssignmentError) else taken
    if cpus.bit_count() != count:
        raise InvalidOption(
            "[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {format_id_list(cpus)} did not equal {count})"
        )
    return cpus


class CPUManager:
    """The CPU Manager during the admission of one pod.

    ``pool`` is the shared pool. ``assigned`` maps the pod's containers to their CPUs. ``bubble`` are the pod's CPUs
    under pod-level resource managers.
    """

    def __init__(
        self,
        policy: StaticPolicy,
        pool: CPUSet,
        assigned: Mapping[str, CPUSet],
        bubble: CPUSet,
        effort: Effort = UNLIMITED,
    ) -> None:
        self._policy, self._effort = policy, effort
        self.pool = pool
        self.assigned = dict(assigned)
        self.bubble = bubble
        self._reusable: CPUSet = 0

    def copy(self) -> "CPUManager":
        """The same manager in a state of its own."""
        copied = CPUManager(self._policy, self.pool, self.assigned, self.bubble, self._effort)
        copied._reusable = self._reusable
        return copied

    def remove_pod(self) -> None:
        """Return the pod's CPUs to the shared pool (RemoveContainer of every container)."""
        self.pool |= self.bubble
        if not self.bubble:
            for cpus in self.assigned.values():
                self.pool |= cpus
        self.assigned.clear()
        self.bubble = 0

    @property
    def _available(self) -> CPUSet:
        return self.pool & ~self._policy.reserved

    @property
    def aligns_by_socket(self) -> bool:
        """Whether a mask is preferred for its sockets as well, whatever its width (option align-by-socket)."""
        return self._policy.options.align_by_socket

    def utilization(self) -> dict[int, int]:
        """The exclusively assigned share of each NUMA node's unreserved CPUs, in percent."""
        return {node: utilization(*self.usage(qos.CPU, 1 << node)) for node in self._policy.topology.numa_nodes}

    def usage(self, _: str, mask: NUMAMask) -> tuple[int, int]:
        """How many of the unreserved CPUs of these NUMA nodes are exclusively assigned, and how many there are."""
        unreserved = self._policy.topology.cpus_of(mask) & ~self._policy.reserved
        return (unreserved & ~self.pool).bit_count(), unreserved.bit_count()

    def requested(self, pod: Pod, container: Container) -> int:
        """The number of exclusive CPUs that the container gets; 0 for the shared pool (guaranteedCPUs)."""
        gates = self._policy.gates
        if not qos.is_guaranteed(pod, gates):
            return 0
        if qos.uses_pod_level_managers(pod, gates) and not qos.is_container_guaranteed(container):
            return 0
        return whole_cpus(container.resources.requests.get(qos.CPU, 0))

    def requested_by_pod(self, pod: Pod) -> int:
        """The most exclusive CPUs that the pod's containers need at any one time (podGuaranteedCPUs)."""
        gates = self._policy.gates
        if pod.resources is not None and qos.uses_pod_level_managers(pod, gates):
            return whole_cpus(pod.resources.requests.get(qos.CPU, 0)) if qos.is_guaranteed(pod, gates) else 0
        return largest_need((container.kind, self.requested(pod, container)) for container in pod.containers)

    def lacks(self, pod: Pod) -> set[str]:
        """The CPUs, if the pod needs more at any one time than are free before it. Empty where that is not known."""
        if pod.resources is not None or not self._policy.topology.is_even:
            return set()
        return {qos.CPU} if self.requested_by_pod(pod) > self._available.bit_count() else set()

    def has_enough(self, pod: Pod, container: Container) -> bool:
        """Whether there are enough CPUs free for the container, wherever they are. Of more the same is never true."""
        count = self.requested(pod, container)
        if count == 0 or pod.resources is not None:
            return True
        physical = (self.pool & ~self._policy.reserved_physical).bit_count()
        if self._policy.options.full_pcpus_only and count > physical:
            return False
        # On uneven cores the kubelet may take reserved CPUs as well, with cores that it counts as whole.
        return not self._policy.topology.is_even or count <= (self._available | self._reusable).bit_count()

    def divides_cores(self, pod: Pod, container: Container) -> bool:
        """Whether option full-pcpus-only refuses the container because it would leave a part of a core."""
        count = self.requested(pod, container)
        whole_cores = self._policy.options.full_pcpus_only and pod.resources is None
        return whole_cores and count % self._policy.topology.cpus_per_core != 0

    def hints(self, pod: Pod, container: Container) -> list[ResourceOffer]:
        """The container's hints (GetTopologyHints)."""
        count = self.requested(pod, container)
        if count == 0 or qos.is_skipped(pod, self._policy.gates):
            return []
        if container.name not in self.assigned:
            return [self._offer(self._available, self._reusable, count)]
        assigned = self.assigned[container.name]
        if assigned.bit_count() != count:
            return [self._impossible(count)]
        return [self._offer(assigned, 0, count)]

    def pod_hints(self, pod: Pod) -> list[ResourceOffer]:
        """The pod's hints (GetPodTopologyHints)."""
        count = self.requested_by_pod(pod)
        if count == 0 or qos.is_skipped(pod, self._policy.gates):
            return []
        whole_pod = qos.uses_pod_level_managers(pod, self._policy.gates)
        if whole_pod and self._is_restored(pod):
            return [self._offer(self.bubble, 0, count) if self.bubble.bit_count() == count else self._impossible(count)]
        empty = whole_pod and self._empty_shared_pool(pod, count)
        if empty:
            return [self._impossible(count, empty)]
        if whole_pod and self._policy.gates.restores_pods and self.bubble:
            return [self._offer((self.pool | self.bubble) & ~self._policy.reserved, 0, count)]
        assigned = 0
        for container in pod.containers:
            if container.name in self.assigned:
                cpus = self.assigned[container.name]
                if cpus.bit_count() != self.requested(pod, container):
                    return [self._impossible(count)]
                assigned |= cpus
        if assigned.bit_count() == count:
            return [self._offer(assigned, 0, count)]
        return [self._offer(self._available, self._reusable | assigned, count)]

    def allocate(self, pod: Pod, container: Container, affinity: NUMAMask | None) -> Rejection | None:
        """Assign the container its CPUs (Allocate). Returns the refusal, None on success."""
        count = self.requested(pod, container)
        if count == 0 or qos.is_skipped(pod, self._policy.gates):
            return None
        keeps_cpus = container.name in self.assigned and self._policy.gates.keeps_assigned_cpus
        misaligned = None if keeps_cpus else self._smt_misalignment(count)
        if misaligned is not None:
            return misaligned
        if container.name not in self.assigned:
            taken = self._allocate_cpus(count, affinity, self._reusable)
            if isinstance(taken, AssignmentError):
                return unexpected(taken.text)
            self.assigned[container.name] = taken
        self._update_reusable(container)
        return None

    def allocate_pod(self, pod: Pod, affinity: NUMAMask | None) -> Rejection | None:
        """Assign the pod one set of CPUs and divide it among its containers (AllocatePod).

        On cores of two kinds the set may be smaller than the request. Dividing it then fails, and the kubelet leaks the
        set: RemoveContainer finds a pod by its containers' shares, which do not exist yet. With ``returns_undivided``
        it returns the set.
        """
        count = self.requested_by_pod(pod)
        if count == 0:
            return None
        if self._is_restored(pod):
            return self._complete(pod, affinity)
        if self._policy.gates.restores_pods:
            self._drop_stale()
        empty = self._empty_shared_pool(pod, count)
        if empty:
            return empty_pod_shared_pool(empty)
        misaligned = self._smt_misalignment(count)
        if misaligned is not None:
            return misaligned
        bubble = self._allocate_cpus(count, affinity, 0)
        if isinstance(bubble, AssignmentError):
            return unexpected(bubble.text)
        rejection = self._divide(pod, bubble, affinity, {})
        if rejection is None:
            self.bubble = bubble
        elif self._policy.gates.returns_undivided:
            self.pool |= bubble
            self.assigned.clear()
        return rejection

    def _is_restored(self, pod: Pod) -> bool:
        """Whether the pod's CPUs are those of an admission before, which the kubelet keeps (podAllocationStaleness).

        It keeps none that are in the shared pool as well, and none where a container has a share and one before it has
        not: that is what an interrupted end of the pod leaves.
        """
        if not self._policy.gates.restores_pods or not self.bubble or self.bubble & self.pool:
            return False
        names = [container.name for container in pod.containers]
        return self.assigned.keys() == set(names[: len(self.assigned)])

    def _drop_stale(self) -> None:
        """Drop CPUs of the pod that are not restored (allocatePodForAdd)."""
        if not self.bubble & self.pool:
            self.pool |= self.bubble
            self.assigned.clear()
        self.bubble = 0

    def _complete(self, pod: Pod, affinity: NUMAMask | None) -> Rejection | None:
        """Give the containers that have no share yet theirs of the pod's CPUs (restorePodAllocation)."""
        if len(self.assigned) == len(pod.containers):
            return None
        rejection = self._divide(pod, self.bubble, affinity, self.assigned)
        if rejection is not None:
            self.remove_pod()
        return rejection

    def _divide(
        self, pod: Pod, bubble: CPUSet, affinity: NUMAMask | None, kept: Mapping[str, CPUSet]
    ) -> Rejection | None:
        """Divide ``bubble``; containers are visited in the order of admission. Those in ``kept`` have their share.

        - An init container takes its share, and the next container may reuse it.
        - A sidecar or an app container keeps its share.
        - An init container without a request shares the CPUs that remain at its turn.
        - Any other container without a request shares the CPUs that remain at the end.

        The kubelet stores the shares only if all of them succeed.
        """
        strategy = self._policy.strategy_for(affinity)
        shares: dict[str, CPUSet] = {}
        remaining = bubble
        for container in pod.containers:
            count = self.requested(pod, container)
            if count:
                taken = kept.get(container.name) or take(
                    self._policy.topology, remaining, count, strategy, self._effort
                )
                if isinstance(taken, AssignmentError):
                    return unexpected(taken.text)
                shares[container.name] = taken
                if container.kind is not ContainerKind.INIT:
                    remaining &= ~taken
            elif container.kind is ContainerKind.INIT:
                shares[container.name] = kept.get(container.name, remaining)
        for container in pod.containers:
            self.assigned[container.name] = shares.get(container.name, remaining)
        return None

    def _empty_shared_pool(self, pod: Pod, count: int) -> str:
        """The error if containers without exclusive CPUs would share none (validatePodScopeResources); else empty."""
        shared, exclusive = False, 0
        for container in pod.containers:
            requested = self.requested(pod, container)
            if container.kind is not ContainerKind.INIT:
                shared = shared or requested == 0
                exclusive += requested
            elif requested == 0 and exclusive >= count:
                return "pod rejected, pod has shared init containers but no cpus available for them"
        if shared and exclusive >= count:
            return (
                "pod rejected, sum of exclusive container cpu requests equals pod budget, "
                "leaving no cpus for shared containers"
            )
        return ""

    def _smt_misalignment(self, count: int) -> Rejection | None:
        """The refusal of option full-pcpus-only, if any (enforceSMTAlignment).

        CPUs that init containers leave for reuse do not count as available.
        """
        per_core = self._policy.topology.cpus_per_core
        if not self._policy.options.full_pcpus_only:
            return None
        # Case 1: the request is not a whole number of cores.
        if count % per_core:
            return self._no_multiple(count)
        # Case 2: too few CPUs are free on cores without a reserved CPU. Before 1.32, if none is, the message of case 1.
        available = (self.pool & ~self._policy.reserved_physical).bit_count()
        if count > available and not available and not self._policy.gates.reports_no_free_cores:
            return self._no_multiple(count)
        if count > available:
            return smt_alignment(
                "SMT Alignment Error: not enough free physical CPUs: "
                f"available physical CPUs = {available}, requested CPUs = {count}, CPUs per core = {per_core}"
            )
        return None

    def _no_multiple(self, count: int) -> Rejection:
        per_core = self._policy.topology.cpus_per_core
        return smt_alignment(f"SMT Alignment Error: requested {count} cpus not multiple cpus per core = {per_core}")

    def _allocate_cpus(self, count: int, affinity: NUMAMask | None, reusable: CPUSet) -> CPUSet | AssignmentError:
        """Take CPUs of the affinity's NUMA nodes first, then the rest from any NUMA node (allocateCPUs)."""
        topology, policy = self._policy.topology, self._policy
        free = self._available | reusable
        taken = 0
        if affinity is not None:
            aligned = free & self._aligned(affinity)
            strategy = policy.strategy_for(affinity)
            first = take(topology, aligned, min(count, aligned.bit_count()), strategy, self._effort)
            if isinstance(first, AssignmentError):
                return first
            taken = first
        rest = take(topology, free & ~taken, count - taken.bit_count(), policy.strategy, self._effort)
        if isinstance(rest, AssignmentError):
            return rest
        self.pool &= ~(taken | rest)
        return taken | rest

    def _aligned(self, affinity: NUMAMask) -> CPUSet:
        """The CPUs of the affinity's NUMA nodes; with align-by-socket those of their sockets (getAlignedCPUs)."""
        topology = self._policy.topology
        local = topology.cpus_of(affinity)
        if not self._policy.options.align_by_socket:
            return local
        aligned = 0
        for cpus in topology.sockets.values():
            if cpus & local:
                aligned |= cpus
        return aligned

    def _update_reusable(self, container: Container) -> None:
        """Later containers reuse the CPUs of init containers; other containers use them up (updateCPUsToReuse)."""
        cpus = self.assigned[container.name]
        if container.kind is ContainerKind.INIT:
            self._reusable |= cpus
        else:
            self._reusable &= ~cpus

    def _impossible(self, count: int, error: str = "") -> ResourceOffer:
        free = self._free_per_node(self._available)
        sizes = self._policy.topology.sizes
        return ResourceOffer(PROVIDER, qos.CPU, count, free, Answer.IMPOSSIBLE, sizes, error=error)

    def _offer(self, available: CPUSet, reusable: CPUSet, count: int) -> ResourceOffer:
        return ResourceOffer(
            PROVIDER,
            qos.CPU,
            count,
            self._free_per_node(available | reusable),
            self._hints(available, reusable, count),
            self._policy.topology.sizes,
            self._policy.topology.numa_nodes_with(reusable),
        )

    def _free_per_node(self, cpus: CPUSet) -> tuple[tuple[int, int], ...]:
        return tuple((node, (local & cpus).bit_count()) for node, local in self._policy.topology.numa_nodes.items())

    def _hints(self, available: CPUSet, reusable: CPUSet, count: int) -> Offer:
        """Every mask with enough free CPUs that covers all reusable ones (generateCPUTopologyHints).

        Masks of the width that the request would need on the empty machine, reserved CPUs included, are preferred.
        """
        nodes = self._policy.topology.numa_nodes
        universe = mask_of(nodes)
        check_list(universe)
        free = {node: (local & available).bit_count() for node, local in nodes.items()}
        thresholds = [per_node(free, count - reusable.bit_count())]
        thresholds += [touching(1 << node) for node in members(self._policy.topology.numa_nodes_with(reusable))]
        sizes = per_node(dict(self._policy.topology.sizes), count)
        width = least_width(Family(universe, (sizes,)), self._effort)
        width = len(nodes) if width is None else width
        hints = Hints((Family(universe, tuple(thresholds)),), width=width, sockets=self._socket_rule(width))
        return hints_or(Answer.IMPOSSIBLE, hints)

    def _socket_rule(self, width: int) -> SocketRule | None:
        topology = self._policy.topology
        per_socket = len(topology.numa_nodes) // len(topology.sockets)
        if not self._policy.options.align_by_socket or per_socket == 0:
            return None
        return SocketRule(topology.numa_nodes_of_sockets, -(-width // per_socket))


def whole_cpus(quantity: int) -> int:
    """The request in CPUs if it is integral (isIntegralCPUAmount), otherwise 0. ``quantity`` is in thousandths.

    An amount beyond an int64 of thousandths is not integral: the two sides of Go's comparison overflow differently.
    """
    return value(quantity) if is_whole(quantity) and abs(quantity) <= MAX_INT64 else 0
