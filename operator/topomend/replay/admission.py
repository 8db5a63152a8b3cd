"""The admission pipeline as far as the Topology Manager: a pod comes to a node, what would its kubelet answer?

What the kubelet checks after it (resource fit, node affinity and others, pkg/kubelet/lifecycle/predicate.go) is not
asked here: a pod that the scheduler placed passes it, and it never turns a topology refusal around.
"""

from collections.abc import Mapping
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
from topomend.replay.cpu.static import CPUManager
from topomend.replay.devices.manager import DeviceManager
from topomend.replay.kubelet import StartedKubelet, start
from topomend.replay.memory.static import Book, MemoryManager, StaticPolicy
from topomend.replay.rejection import KUBELET_WOULD_NOT_START, MESSAGE_PREFIX, KubeletBreaks, Rejection
from topomend.replay.topology.scopes import NO_AFFINITY, Admission, Providers, Scope


def admit(node: NodeState, pod: Pod) -> tuple[Verdict, NodeState]:
    """The kubelet's answer to ``pod`` on ``node``, and the node's state after it.

    Total: every node and pod gets a verdict. A kubelet that would not start, would panic or would never answer is a
    refusal with a reason of our own (see ``rejection``). What a refused pod had already been given is purged, as the
    kubelet does before its next admission. A pod that already holds something is admitted again, as after a restart.
    """
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return _refused(pod, KUBELET_WOULD_NOT_START, kubelet), node
    held = _held_by(node, pod.namespace, pod.name, pod.uid)
    providers = _providers(kubelet, node, held)
    settings = node.kubelet
    scope = Scope(settings.topology_manager_policy, kubelet.numa, kubelet.gates, providers)
    try:
        admission = scope.admit(pod, settings.topology_manager_scope)
    except KubeletBreaks as broken:
        verdict = _refused(pod, broken.reason, broken.why)
        return replace(verdict, unmodelled=kubelet.unmodelled), node
    if admission.rejection:
        return _rejected(pod, admission.rejection, admission, kubelet), _purged(kubelet, node, held, providers)
    containers = _containers(pod, providers, held)
    verdict = Verdict(
        pod.namespace,
        pod.name,
        admitted=True,
        containers=_placements(pod, admission, providers),
        merges=tuple(admission.merges),
        unmodelled=kubelet.unmodelled,
    )
    return verdict, _with_pod(node, held, PodAllocation(pod.namespace, pod.name, pod.uid, containers), providers)


def release(node: NodeState, namespace: str, name: str) -> NodeState:
    """The node after the pod has ended: everything it held is free again. An unknown pod changes nothing."""
    ended = [pod for pod in node.pods if (pod.namespace, pod.name) == (namespace, name)]
    if not ended:
        return node
    memory = node.memory
    kubelet = start(node.machine, node.kubelet)
    if not isinstance(kubelet, str) and kubelet.memory and memory is not None:
        book = Book(kubelet.memory)
        book.load(memory)
        for block in (block for each in allocations(ended) for block in each.memory):
            book.release(block)
        memory = book.saved()
    return replace(node, pods=tuple(pod for pod in node.pods if pod not in ended), memory=memory)


def start_refusal(node: NodeState) -> str | None:
    """What the kubelet would say instead of starting with these settings on this machine; None if it starts."""
    kubelet = start(node.machine, node.kubelet)
    return kubelet if isinstance(kubelet, str) else None


def _held_by(node: NodeState, namespace: str, name: str, uid: str) -> PodAllocation | None:
    """What the pod itself holds. A pod of another uid is another pod; an unknown uid may be this one."""
    for pod in node.pods:
        if (pod.namespace, pod.name) == (namespace, name) and (pod.uid == uid or not pod.uid or not uid):
            return pod
    return None


def _providers(kubelet: StartedKubelet, node: NodeState, held: PodAllocation | None) -> Providers:
    others = tuple(allocations(pod for pod in node.pods if pod is not held))
    own = held.containers if held else ()
    devices = DeviceManager(
        kubelet.gates,
        kubelet.numa.nodes,
        node.devices,
        (device for each in others for device in each.devices),
        {each.name: each.devices for each in own if each.devices},
    )
    cpu = memory = None
    if kubelet.cpu:
        busy: CPUSet = 0
        for each in others:
            busy |= each.cpus
        cpu = CPUManager(kubelet.cpu, busy, {each.name: each.cpus for each in own if each.cpus})
    if kubelet.memory:
        blocks = {each.name: each.memory for each in own if each.memory}
        memory = MemoryManager(kubelet.memory, _book(kubelet.memory, node), blocks)
    return Providers(devices, cpu, memory)


def _book(policy: StaticPolicy, node: NodeState) -> Book:
    """The kubelet's book where it is known, else the one that its blocks add up to (updateExpectedMachineState)."""
    book = Book(policy)
    if node.memory is not None:
        book.load(node.memory)
        return book
    for each in allocations(node.pods):
        for block in each.memory:
            book.reserve(block.numa_nodes, block.resource, block.size)
    return book


def _containers(pod: Pod, providers: Providers, held: PodAllocation | None) -> tuple[ContainerAllocation, ...]:
    """What the pod's containers hold now, those that hold nothing left out."""
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
    return tuple(each for each in every if each.cpus or each.memory or each.devices)


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
                tuple(_device_placement(each, providers) for each in providers.devices.allocations(container.name)),
            )
        )
    return tuple(placements)


def _device_placement(allocation: DeviceAllocation, providers: Providers) -> DevicePlacement:
    return DevicePlacement(allocation.resource, len(allocation.ids), providers.devices.numa_nodes_of(allocation))


def _with_pod(node: NodeState, held: PodAllocation | None, pod: PodAllocation, providers: Providers) -> NodeState:
    if held is not None:
        kept = replace(pod, uid=pod.uid or held.uid)
        pods = tuple(kept if each is held else each for each in node.pods)
    else:
        pods = (*node.pods, pod) if pod.containers else node.pods
    return replace(node, pods=pods, memory=providers.memory.book.saved() if providers.memory else node.memory)


def _purged(kubelet: StartedKubelet, node: NodeState, held: PodAllocation | None, providers: Providers) -> NodeState:
    """The node after a refusal: the pod holds nothing, be it from this admission or from before."""
    pods = tuple(each for each in node.pods if each is not held) if held else node.pods
    manager = providers.memory
    if manager is None or kubelet.memory is None or not any(manager.blocks.values()):
        return replace(node, pods=pods) if held else node
    before = _book(kubelet.memory, node).saved()
    for blocks in manager.blocks.values():
        for block in blocks:
            manager.book.release(block)
    memory = manager.book.saved()
    return replace(node, pods=pods, memory=node.memory if memory == before else memory)


def _refused(pod: Pod, reason: str, why: str) -> Verdict:
    return Verdict(pod.namespace, pod.name, admitted=False, reason=reason, message=why)


def _rejected(pod: Pod, rejection: Rejection, admission: Admission, kubelet: StartedKubelet) -> Verdict:
    return Verdict(
        pod.namespace,
        pod.name,
        admitted=False,
        reason=rejection.reason,
        message=MESSAGE_PREFIX + rejection.message,
        merges=tuple(admission.merges),
        failure=admission.failure,
        unmodelled=kubelet.unmodelled,
    )
