"""The kubelet's admission up to the Topology Manager: its verdict on a pod, and the node's state afterwards.

Leaves out the kubelet's later checks, such as resource fit and node affinity (pkg/kubelet/lifecycle/predicate.go). A
pod that the scheduler placed passes them, and none of them reverses a refusal by topology.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from topomend.model.bitmask import CPUSet
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    PodAllocation,
    allocations,
)
from topomend.model.pods.pod import ContainerKind, Pod, is_extended
from topomend.model.verdict import ContainerPlacement, DevicePlacement, Verdict
from topomend.replay import qos
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu.static import CPUManager, whole_cpus
from topomend.replay.cpu.static import StaticPolicy as CPUPolicy
from topomend.replay.devices.manager import DeviceManager, pools_of
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.errors import KUBELET_WOULD_NOT_START, MESSAGE_PREFIX, KubeletBreaks, Rejection
from topomend.replay.gates import Gates, read_gates
from topomend.replay.memory.machine_state import MachineState
from topomend.replay.memory.static import MemoryManager
from topomend.replay.memory.static import StaticPolicy as MemoryPolicy
from topomend.replay.scopes import NO_AFFINITY, Admission, Providers, Scope

UNCOUNTED = 1000 << 46
"""64Ti in thousandths: from this amount on replay does not know how the kubelet counts."""


def admit(node: NodeState, pod: Pod, effort: Effort = UNLIMITED) -> tuple[Verdict, NodeState]:
    """The kubelet's answer to ``pod`` on ``node``, and the node's state after it.

    Every node and pod gets a verdict, but for Overspent of a limited ``effort``. A kubelet that would not start,
    crash or hang refuses with one of topomend's own reasons (``errors``). The allocations of a refused pod are removed,
    as the kubelet does before its next admission. A pod that already has an allocation is admitted again, as after a
    restart of the kubelet. While that is not ready (``node.initial_containers``), containers that run keep their
    devices unseen, and nothing is removed of pods that are refused (removeStaleState of cpu_manager.go and
    memory_manager.go, devicemanager/manager.go:UpdateAllocatedDevices).
    """
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return _refused(pod, KUBELET_WOULD_NOT_START, kubelet, read_gates(node.kubelet).unmodelled), node
    remarks = (*kubelet.unmodelled, *_uncounted(pod), *_left_to_chance(kubelet, node, pod))
    previous = allocation_of(node, pod.namespace, pod.name, pod.uid)
    providers = providers_of(kubelet, node, previous, _running(node, pod), effort)
    settings = node.kubelet
    scope = Scope(settings.topology_manager_policy, kubelet.numa, kubelet.gates, providers, kubelet.strategy)
    # The rules read the pod's QoS class once for each container. Compute it once here.
    classed = replace(pod, qos_class=qos.qos_class(pod, kubelet.gates))
    try:
        with effort.working_on(node.name, len(pod.containers)):
            admission = scope.admit(classed, settings.topology_manager_scope)
    except KubeletBreaks as broken:
        return _refused(pod, broken.reason, broken.why, remarks), node
    if admission.rejection and node.initial_containers is None:
        providers.remove_pod()
        pods = tuple(allocation for allocation in node.pods if allocation is not previous) if previous else node.pods
        return _rejected(pod, admission.rejection, admission, remarks), _with_pods(kubelet, node, pods, providers)
    after = _with_pods(kubelet, node, _pods_with(node, previous, _allocation(pod, providers, previous)), providers)
    if admission.rejection:
        return _rejected(pod, admission.rejection, admission, remarks), after
    verdict = Verdict(
        pod.namespace,
        pod.name,
        admitted=True,
        containers=_placements(pod, admission, providers),
        merges=tuple(admission.merges),
        unmodelled=remarks,
    )
    return verdict, after


def is_admitted(node: NodeState, pod: Pod, effort: Effort = UNLIMITED) -> bool:
    """Whether the kubelet admits the pod: ``admit(node, pod)[0].admitted``, without the trace and the state after it.

    For a pod that holds nothing on the node yet.
    """
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return False
    settings = node.kubelet
    scope = Scope(
        settings.topology_manager_policy,
        kubelet.numa,
        kubelet.gates,
        providers_of(kubelet, node, None, _running(node, pod), effort),
        kubelet.strategy,
        traces=False,
    )
    classed = replace(pod, qos_class=qos.qos_class(pod, kubelet.gates))
    try:
        with effort.working_on(node.name, len(pod.containers)):
            return scope.admit(classed, settings.topology_manager_scope).rejection is None
    except KubeletBreaks:
        return False


def each_alone(pod: Pod, gates: Gates) -> tuple[Pod, ...]:
    """What an emptied node admits that admits ``pod`` once some of its pods have ended: each container alone.

    It need not admit the pod itself: the first container may then get what a later one needs, and what another pod
    keeps from it now. None where the managers allocate to the pod as a whole.
    """
    if len(pod.containers) == 1:
        return (pod,)
    if qos.uses_pod_level_managers(pod, gates):
        return ()
    quality = qos.qos_class(pod, gates)
    return tuple(replace(pod, containers=(container,), qos_class=quality) for container in pod.containers)


def may_allocate(node: NodeState, pod: Pod) -> bool:
    """Whether the kubelet may allocate anything exclusive to ``pod``, by its settings and the pod's requests alone.

    Where it is False, admission leaves the node's state as it is. It costs no replay.
    """
    resources = [container.resources for container in pod.containers]
    offered = {device.resource for device in node.devices}
    if pod.resources is not None or any(offered & limits.limits.keys() for limits in resources):
        return True
    settings = node.kubelet
    cpus = any(whole_cpus(requests.requests.get(qos.CPU, 0)) for requests in resources)
    is_exclusive = settings.memory_manager_policy == "Static" or (settings.cpu_manager_policy == "static" and cpus)
    return is_exclusive and qos.is_guaranteed(pod, read_gates(settings))  # reading the gates takes longest


def release(node: NodeState, namespace: str, name: str) -> NodeState:
    """The node's state after the pod has ended, its resources free again. An unknown pod changes nothing."""
    ended = [pod for pod in node.pods if (pod.namespace, pod.name) == (namespace, name)]
    kubelet = start(node.machine, node.kubelet)
    for pod in ended:
        pods = tuple(allocation for allocation in node.pods if allocation is not pod)
        if isinstance(kubelet, str):
            node = replace(node, pods=pods)
        else:
            providers = providers_of(kubelet, node, pod)
            providers.remove_pod()
            node = _with_pods(kubelet, node, pods, providers)
    return node


def is_with_scope_admitted(node: NodeState, pod: Pod, scope: str, effort: Effort) -> bool:
    """Whether the kubelet would admit the pod under another scope."""
    return is_admitted(replace(node, kubelet=replace(node.kubelet, topology_manager_scope=scope)), pod, effort)


def reserved_cpus(node: NodeState) -> CPUSet:
    """The CPUs that the CPU Manager keeps for the system; none where it pins nothing."""
    kubelet = start(node.machine, node.kubelet)
    return 0 if isinstance(kubelet, str) or kubelet.cpu is None else kubelet.cpu.reserved


def start_refusal(node: NodeState) -> str | None:
    """The error with which the kubelet would not start with these settings on this machine; None if it starts."""
    kubelet = start(node.machine, node.kubelet)
    return kubelet if isinstance(kubelet, str) else None


def shared_pool(node: NodeState) -> CPUSet:
    """The CPUs of containers without exclusive ones. Contains the reserved CPUs unless strict-cpu-reservation is on."""
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str) or kubelet.cpu is None:
        return node.machine.cpus
    return pool_of(kubelet.cpu, node)


def _uncounted(pod: Pod) -> tuple[str, ...]:
    """Remarks on requests so large that the kubelet's count depends on how the quantity is written.

    From about 93Ti on Go keeps some quantities as decimals, which the Memory Manager cannot convert to int64. Beyond an
    int64 of thousandths others wrap around or count as 0 (apimachinery pkg/api/resource/quantity.go:ParseQuantity,
    ScaledValue).
    """
    lists = [container.resources for container in pod.containers]
    lists += [pod.resources] if pod.resources else []
    beyond = {name for resources in lists for name, amount in resources.requests.items() if abs(amount) >= UNCOUNTED}
    return tuple(
        f"how a kubelet counts 64Ti of {name} and more depends on how it is written" for name in sorted(beyond)
    )


def _running(node: NodeState, pod: Pod) -> frozenset[str]:
    """The pod's containers of which the restarted kubelet found any instance running, until it is ready.

    Source: devicemanager/manager.go:isContainerAlreadyRunning.
    """
    return frozenset(
        found.name for found in node.initial_containers or () if found.pod_uid == pod.uid and found.running
    )


def _left_to_chance(kubelet: ContainerManager, node: NodeState, pod: Pod) -> tuple[str, ...]:
    """Remarks on containers with devices of which instances that ended are found beside one that runs.

    Kubelets without ``finds_any_running`` look at one of them, which the order of Go's maps chooses.
    """
    if node.initial_containers is None or kubelet.gates.finds_any_running:
        return ()
    asking = {container.name for container in pod.containers if any(map(is_extended, container.resources.limits))}
    found = {(each.name, each.running) for each in node.initial_containers if each.pod_uid == pod.uid}
    return tuple(
        f"whether a kubelet before 1.36 that has restarted finds {name} running, which has restarted too, is chance"
        for name in sorted(asking)
        if {(name, True), (name, False)} <= found
    )


def allocation_of(node: NodeState, namespace: str, name: str, uid: str) -> PodAllocation | None:
    """The pod's own allocation, None without any. A pod with another uid is another pod; an empty uid matches any."""
    for pod in node.pods:
        if (pod.namespace, pod.name) == (namespace, name) and (pod.uid == uid or not pod.uid or not uid):
            return pod
    return None


def providers_of(
    kubelet: ContainerManager,
    node: NodeState,
    previous: PodAllocation | None,
    running: Collection[str] = (),
    effort: Effort = UNLIMITED,
) -> Providers:
    """The managers at work on one pod, which has the allocation ``previous`` already.

    ``running`` are its containers that a kubelet which is not ready yet found running.
    """
    others = tuple(allocations(pod for pod in node.pods if pod is not previous))
    containers = previous.containers if previous else ()
    devices = DeviceManager(
        kubelet.gates,
        kubelet.numa.nodes,
        pools_of(node.devices, node.stopped_resources),
        (device for other in others for device in other.devices),
        {container.name: container.devices for container in containers if container.devices},
        effort=effort,
    )
    devices.running = running
    cpu = memory = None
    if kubelet.cpu:
        cpus = {container.name: container.cpus for container in containers if container.cpus}
        bubble = previous.cpus if previous else 0
        cpu = CPUManager(kubelet.cpu, pool_of(kubelet.cpu, node), cpus, bubble, effort)
    if kubelet.memory:
        # A container without a memory request can have been admitted only under pod-level resource managers.
        blank = kubelet.gates.pod_level_resource_managers
        blocks = {container.name: container.memory for container in containers if container.memory or blank}
        memory = MemoryManager(
            kubelet.memory,
            machine_state_of(kubelet.memory, node),
            blocks,
            previous.memory if previous else (),
            effort,
        )
    return Providers(devices, cpu, memory, effort)


def pool_of(policy: CPUPolicy, node: NodeState) -> CPUSet:
    """The shared pool: the kubelet's own if it was published, otherwise the CPUs that no allocation contains."""
    return _pool_left_by(policy, node.pods) if node.cpu_pool is None else node.cpu_pool


def _pool_left_by(policy: CPUPolicy, pods: Iterable[PodAllocation]) -> CPUSet:
    pool = policy.pool
    for pod in pods:
        pool &= ~pod.cpus
        for container in pod.containers:
            pool &= ~container.cpus
    return pool


def machine_state_of(policy: MemoryPolicy, node: NodeState) -> MachineState:
    """The Memory Manager's state: the kubelet's own if it was published, otherwise the sum of all blocks.

    Source of the sum: memorymanager/policy_static.go:updateExpectedMachineState.
    """
    machine_state = MachineState(policy.allocatable)
    if node.memory is not None:
        machine_state.load(node.memory)
        return machine_state
    for pod in node.pods:
        for block in pod.memory or (block for container in pod.containers for block in container.memory):
            machine_state.reserve(block.numa_nodes, block.resource, block.size)
    return machine_state


def _allocation(pod: Pod, providers: Providers, previous: PodAllocation | None) -> PodAllocation:
    """The pod's allocation after the admission."""
    return PodAllocation(
        pod.namespace,
        pod.name,
        pod.uid or (previous.uid if previous else ""),
        _containers(pod, providers, previous),
        providers.cpu.bubble if providers.cpu else 0,
        providers.memory.pod_blocks if providers.memory else (),
    )


def _containers(pod: Pod, providers: Providers, previous: PodAllocation | None) -> tuple[ContainerAllocation, ...]:
    """The allocations of the pod's containers after the admission, without containers that no manager handled."""
    kinds = {container.name: container.kind for container in pod.containers}
    before = {container.name: container for container in previous.containers} if previous else {}
    names = dict.fromkeys([*before, *kinds])
    every = (
        ContainerAllocation(
            name,
            kinds[name] is ContainerKind.INIT if name in kinds else before[name].init,
            _cpus(providers, name, before),
            _memory(providers, name, before),
            providers.devices.allocations(name),
        )
        for name in names
    )
    served = providers.memory.blocks if providers.memory else ()
    return tuple(
        container
        for container in every
        if container.cpus or container.memory or container.devices or container.name in served
    )


def _cpus(providers: Providers, name: str, before: Mapping[str, ContainerAllocation]) -> CPUSet:
    if providers.cpu:
        return providers.cpu.assigned.get(name, 0)
    return before[name].cpus if name in before else 0


def _memory(providers: Providers, name: str, before: Mapping[str, ContainerAllocation]) -> tuple[MemoryBlock, ...]:
    if providers.memory:
        return providers.memory.blocks.get(name, ())
    return before[name].memory if name in before else ()


def _placements(pod: Pod, admission: Admission, providers: Providers) -> tuple[ContainerPlacement, ...]:
    placements = []
    for container in pod.containers:
        affinity = admission.affinities.get(container.name, NO_AFFINITY)
        placements.append(
            ContainerPlacement(
                container.name,
                container.kind is ContainerKind.INIT,
                affinity.mask,
                affinity.preferred,
                _cpus(providers, container.name, {}),
                _memory(providers, container.name, {}),
                tuple(
                    _device_placement(allocation, providers)
                    for allocation in providers.devices.allocations(container.name)
                ),
            )
        )
    return tuple(placements)


def _device_placement(allocation: DeviceAllocation, providers: Providers) -> DevicePlacement:
    return DevicePlacement(allocation.resource, len(allocation.ids), providers.devices.numa_nodes_of(allocation))


def _pods_with(node: NodeState, previous: PodAllocation | None, pod: PodAllocation) -> tuple[PodAllocation, ...]:
    if previous is not None:
        return tuple(pod if allocation is previous else allocation for allocation in node.pods)
    return (*node.pods, pod) if pod.containers else node.pods


def _with_pods(
    kubelet: ContainerManager, node: NodeState, pods: tuple[PodAllocation, ...], providers: Providers
) -> NodeState:
    """The node with the allocations ``pods``, and with the managers' pool and machine state.

    The pool stays None while the allocations alone determine it. A machine state that did not change stays the same.
    """
    pool, memory = node.cpu_pool, node.memory
    if kubelet.cpu and providers.cpu and (pool is not None or providers.cpu.pool != _pool_left_by(kubelet.cpu, pods)):
        pool = providers.cpu.pool
    if kubelet.memory and providers.memory:
        saved = providers.memory.machine_state.saved()
        memory = memory if saved == machine_state_of(kubelet.memory, node).saved() else saved
    return replace(node, pods=pods, memory=memory, cpu_pool=pool)


def _refused(pod: Pod, reason: str, why: str, unmodelled: tuple[str, ...]) -> Verdict:
    return Verdict(pod.namespace, pod.name, admitted=False, reason=reason, message=why, unmodelled=unmodelled)


def _rejected(pod: Pod, rejection: Rejection, admission: Admission, unmodelled: tuple[str, ...]) -> Verdict:
    return Verdict(
        pod.namespace,
        pod.name,
        admitted=False,
        reason=rejection.reason,
        message=MESSAGE_PREFIX + rejection.message,
        merges=tuple(admission.merges),
        failure=admission.failure,
        unmodelled=unmodelled,
    )
