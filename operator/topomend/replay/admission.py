"""The admission pipeline as far as the Topology Manager: a pod comes to a node, what would its kubelet answer?

What the kubelet checks after it (resource fit, node affinity and others, pkg/kubelet/lifecycle/predicate.go) is not
asked here: a pod that the scheduler placed passes it, and it never turns a topology refusal around.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from topomend.model.bitmask import CPUSet
from topomend.model.node_state import (
    ContainerAllocation,
    DeviceAllocation,
    MemoryBlock,
    NodeState,
    PodAllocation,
    allocations,
)
from topomend.model.pod import ContainerKind, Pod
from topomend.model.verdict import ContainerPlacement, DevicePlacement, Verdict
from topomend.replay import qos
from topomend.replay.container_manager import ContainerManager, start
from topomend.replay.cpu.static import CPUManager
from topomend.replay.cpu.static import StaticPolicy as CPUPolicy
from topomend.replay.devices.manager import DeviceManager
from topomend.replay.errors import KUBELET_WOULD_NOT_START, MESSAGE_PREFIX, KubeletBreaks, Rejection
from topomend.replay.gates import read_gates
from topomend.replay.memory.machine_state import Book
from topomend.replay.memory.static import MemoryManager
from topomend.replay.memory.static import StaticPolicy as MemoryPolicy
from topomend.replay.scopes import NO_AFFINITY, Admission, Providers, Scope

UNCOUNTED = 1000 << 46
"""64Ti in thousandths."""


def admit(node: NodeState, pod: Pod) -> tuple[Verdict, NodeState]:
    """The kubelet's answer to ``pod`` on ``node``, and the node's state after it.

    Total: every node and pod gets a verdict. A kubelet that would not start, would panic or would never answer is a
    refusal with a reason of our own (see ``rejection``). What a refused pod had already been given is purged, as the
    kubelet does before its next admission. A pod that already holds something is admitted again, as after a restart.
    """
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return _refused(pod, KUBELET_WOULD_NOT_START, kubelet, read_gates(node.kubelet).unmodelled), node
    remarks = (*kubelet.unmodelled, *_uncounted(pod))
    held = held_by(node, pod.namespace, pod.name, pod.uid)
    providers = _providers(kubelet, node, held)
    settings = node.kubelet
    scope = Scope(
        settings.topology_manager_policy, kubelet.numa, kubelet.gates, providers, kubelet.prefer_most_allocated
    )
    # Each container is asked about by its pod's class, which would be worked out from all of them each time.
    classed = replace(pod, qos_class=qos.qos_class(pod, kubelet.gates))
    try:
        admission = scope.admit(classed, settings.topology_manager_scope)
    except KubeletBreaks as broken:
        return _refused(pod, broken.reason, broken.why, remarks), node
    if admission.rejection:
        providers.remove_pod()
        pods = tuple(allocation for allocation in node.pods if allocation is not held) if held else node.pods
        return _rejected(pod, admission.rejection, admission, remarks), _with_pods(kubelet, node, pods, providers)
    verdict = Verdict(
        pod.namespace,
        pod.name,
        admitted=True,
        containers=_placements(pod, admission, providers),
        merges=tuple(admission.merges),
        unmodelled=remarks,
    )
    return verdict, _with_pods(kubelet, node, _pods_with(node, held, _allocation(pod, providers, held)), providers)


def release(node: NodeState, namespace: str, name: str) -> NodeState:
    """The node after the pod has ended: everything it held is free again. An unknown pod changes nothing."""
    ended = [pod for pod in node.pods if (pod.namespace, pod.name) == (namespace, name)]
    kubelet = start(node.machine, node.kubelet)
    for pod in ended:
        pods = tuple(allocation for allocation in node.pods if allocation is not pod)
        if isinstance(kubelet, str):
            node = replace(node, pods=pods)
        else:
            providers = _providers(kubelet, node, pod)
            providers.remove_pod()
            node = _with_pods(kubelet, node, pods, providers)
    return node


def start_refusal(node: NodeState) -> str | None:
    """What the kubelet would say instead of starting with these settings on this machine; None if it starts."""
    kubelet = start(node.machine, node.kubelet)
    return kubelet if isinstance(kubelet, str) else None


def unmodelled(node: NodeState) -> tuple[str, ...]:
    """What replay does not know about the node's kubelet: each verdict carries it."""
    kubelet = start(node.machine, node.kubelet)
    return read_gates(node.kubelet).unmodelled if isinstance(kubelet, str) else kubelet.unmodelled


def shared_pool(node: NodeState) -> CPUSet:
    """The CPUs of containers without exclusive ones, reserved CPUs included unless these are kept strictly apart."""
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str) or kubelet.cpu is None:
        return node.machine.cpus
    return pool_of(kubelet.cpu, node)


def _uncounted(pod: Pod) -> tuple[str, ...]:
    """What the pod asks of resources in amounts that Go's quantities count by how they are written.

    From about 93Ti on some are kept as decimals, which are no int64 to the Memory Manager; from an int64 of thousandths
    on others wrap around, or count as nothing (apimachinery pkg/api/resource/quantity.go:ParseQuantity, ScaledValue).
    """
    lists = [container.resources for container in pod.containers]
    lists += [pod.resources] if pod.resources else []
    beyond = {name for resources in lists for name, amount in resources.requests.items() if abs(amount) >= UNCOUNTED}
    return tuple(
        f"how a kubelet counts 64Ti of {name} and more depends on how it is written" for name in sorted(beyond)
    )


def held_by(node: NodeState, namespace: str, name: str, uid: str) -> PodAllocation | None:
    """What the pod itself holds. A pod of another uid is another pod; an unknown uid may be this one."""
    for pod in node.pods:
        if (pod.namespace, pod.name) == (namespace, name) and (pod.uid == uid or not pod.uid or not uid):
            return pod
    return None


def _providers(kubelet: ContainerManager, node: NodeState, held: PodAllocation | None) -> Providers:
    others = tuple(allocations(pod for pod in node.pods if pod is not held))
    own = held.containers if held else ()
    devices = DeviceManager(
        kubelet.gates,
        kubelet.numa.nodes,
        node.devices,
        (device for other in others for device in other.devices),
        {container.name: container.devices for container in own if container.devices},
    )
    cpu = memory = None
    if kubelet.cpu:
        cpus = {container.name: container.cpus for container in own if container.cpus}
        cpu = CPUManager(kubelet.cpu, pool_of(kubelet.cpu, node), cpus, held.cpus if held else 0)
    if kubelet.memory:
        # Only beside pod-level resources can a container be served without asking for memory.
        blank = kubelet.gates.pod_level_resource_managers
        blocks = {container.name: container.memory for container in own if container.memory or blank}
        memory = MemoryManager(kubelet.memory, book_of(kubelet.memory, node), blocks, held.memory if held else ())
    return Providers(devices, cpu, memory)


def pool_of(policy: CPUPolicy, node: NodeState) -> CPUSet:
    """The shared pool: as the kubelet keeps it where that is known, else what nobody holds."""
    return _pool_left_by(policy, node.pods) if node.cpu_pool is None else node.cpu_pool


def _pool_left_by(policy: CPUPolicy, pods: Iterable[PodAllocation]) -> CPUSet:
    pool = policy.pool
    for pod in pods:
        pool &= ~pod.cpus
        for container in pod.containers:
            pool &= ~container.cpus
    return pool


def book_of(policy: MemoryPolicy, node: NodeState) -> Book:
    """The Memory Manager's book: as the kubelet keeps it where that is known, else what the blocks add up to.

    Source of the sum: memorymanager/policy_static.go:updateExpectedMachineState.
    """
    book = Book(policy.allocatable)
    if node.memory is not None:
        book.load(node.memory)
        return book
    for pod in node.pods:
        for block in pod.memory or (block for container in pod.containers for block in container.memory):
            book.reserve(block.numa_nodes, block.resource, block.size)
    return book


def _allocation(pod: Pod, providers: Providers, held: PodAllocation | None) -> PodAllocation:
    """What the pod holds now."""
    return PodAllocation(
        pod.namespace,
        pod.name,
        pod.uid or (held.uid if held else ""),
        _containers(pod, providers, held),
        providers.cpu.bubble if providers.cpu else 0,
        providers.memory.pod_blocks if providers.memory else (),
    )


def _containers(pod: Pod, providers: Providers, held: PodAllocation | None) -> tuple[ContainerAllocation, ...]:
    """What the pod's containers hold now; those that the managers did not serve are left out."""
    kinds = {container.name: container.kind for container in pod.containers}
    before = {each.name: each for each in held.containers} if held else {}
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


def _pods_with(node: NodeState, held: PodAllocation | None, pod: PodAllocation) -> tuple[PodAllocation, ...]:
    if held is not None:
        return tuple(pod if allocation is held else allocation for allocation in node.pods)
    return (*node.pods, pod) if pod.containers else node.pods


def _with_pods(
    kubelet: ContainerManager, node: NodeState, pods: tuple[PodAllocation, ...], providers: Providers
) -> NodeState:
    """The node with other holders. The pool stays untold as long as the holders alone tell it; a book that did not
    change stays as it was told."""
    pool, memory = node.cpu_pool, node.memory
    if kubelet.cpu and providers.cpu and (pool is not None or providers.cpu.pool != _pool_left_by(kubelet.cpu, pods)):
        pool = providers.cpu.pool
    if kubelet.memory and providers.memory:
        saved = providers.memory.book.saved()
        memory = memory if saved == book_of(kubelet.memory, node).saved() else saved
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
