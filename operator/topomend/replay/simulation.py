"""A kubelet to ask about pods, put together from what is known of its node, and what its answers leave out.

A NodeTopology has the machine, the kubelet's settings and exclusive allocations; a shape has the machine. The Node and
its pods, which are optional, have the labels, the totals and what the other pods request. Where those are not known,
the part of the fit check that needs them is left out, and each answer says so. Owns that. Leaves the admission to
``replay``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import ContainerAllocation, NodeState, PodAllocation
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.model.pods.scheduling import Placement
from topomend.model.quantity import MAX_INT64
from topomend.model.verdict import Verdict
from topomend.replay.admission import start_refusal
from topomend.replay.errors import KUBELET_WOULD_NOT_START
from topomend.replay.gates import read_gates
from topomend.replay.lifecycle.allocation_manager import Kubelet, can_admit_pod, end
from topomend.replay.lifecycle.node_allocatable import MAX_PODS, knows_reserved_memory, node_allocatable
from topomend.replay.lifecycle.predicate import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, missing_resources


@dataclass(frozen=True)
class Simulation:
    """A kubelet and its pods. ``object`` is whether its Node object is known, ``all_pods`` whether every pod is.

    ``max_pods`` is whether it is known how many pods it takes. ``would_not_start`` is the kubelet's error where it does
    not start with its settings, for a reason that replay does not see; empty otherwise.
    """

    kubelet: Kubelet
    object: bool
    all_pods: bool
    max_pods: bool = True
    would_not_start: str = ""

    def answer(self, bound: BoundPod) -> tuple[Verdict, "Simulation"]:
        """The kubelet's answer to one more pod, and the simulation after it."""
        if self.would_not_start:
            reason, why = KUBELET_WOULD_NOT_START, self.would_not_start
            return Verdict(*bound.key, admitted=False, reason=reason, message=why), self
        verdict, kubelet = can_admit_pod(self.kubelet, self._judged(bound))
        return verdict, replace(self, kubelet=kubelet)

    def answer_in(self, state: NodeState, bound: BoundPod) -> Verdict:
        """The kubelet's answer in another state of its managers. Pods that are gone in it request nothing."""
        before = self.kubelet.state
        pods = tuple(pod for pod in self.kubelet.pods if state.holds(*pod.key) or not before.holds(*pod.key))
        return replace(self, kubelet=replace(self.kubelet, state=state, pods=pods)).answer(bound)[0]

    def after(self, namespace: str, name: str) -> "Simulation":
        """The simulation after a pod has ended."""
        return replace(self, kubelet=end(self.kubelet, namespace, name))

    def not_checked(self, bound: BoundPod) -> Iterator[str]:
        """What the answer to this pod leaves out, each as a noun phrase."""
        if self.would_not_start or start_refusal(self.kubelet.state) is not None:
            return
        yield from self._not_known(bound)
        for resource in self.missing(bound):
            yield f"{resource}, which the node is not known to have"

    def _not_known(self, bound: BoundPod) -> Iterator[str]:
        """The facts about the node and its other pods that the answer needs and nobody gave."""
        requests = requests_of(bound.pod)
        if not self.object:
            if bound.placement.node_selector or bound.placement.terms is not None:
                yield "node affinity"
            if bound.strict_groups:
                yield "the node's support of supplementalGroupsPolicy"
            if requests.get(EPHEMERAL_STORAGE):
                yield EPHEMERAL_STORAGE
            if not self.max_pods:
                yield "the number of pods"
        if not self.all_pods:
            if not self.object:
                yield "taints"
                if MEMORY in requests and not knows_reserved_memory(self.kubelet.state.kubelet):
                    yield "memory that kubeReserved and systemReserved set aside"
            yield "what other pods on the node request beyond their exclusive resources"

    def missing(self, bound: BoundPod) -> list[str]:
        """The extended resources of the pod that the node is not known to have, which its kubelet does not count."""
        state = self.kubelet.state
        there = {**self.kubelet.node.allocatable, **{device.resource: 0 for device in state.devices}}
        return missing_resources(bound, there, read_gates(state.kubelet))

    def _judged(self, bound: BoundPod) -> BoundPod:
        """The pod as the kubelet of this node gets it: bound to it, without rules about facts that are not known."""
        if self.object:
            return replace(bound, node="")
        placement = Placement(tolerations=bound.placement.tolerations)
        return replace(bound, node="", placement=placement, strict_groups=False)


def simulation_of(
    state: NodeState, node: Node | None = None, pods: Iterable[BoundPod] | None = (), would_not_start: str = ""
) -> Simulation:
    """The kubelet of a node in this state. ``pods`` are all that are on it; None where that is not known.

    Of pods that are not known, what they hold exclusively counts.
    """
    known = tuple(replace(pod, node="") for pod in pods or ())
    names = {pod.key for pod in known}
    others = tuple(BoundPod(_holder(holder)) for holder in state.pods if (holder.namespace, holder.name) not in names)
    # A kubelet that has admitted so many pods already has another limit than the default one.
    max_pods = node is not None or len(state.pods) < MAX_PODS
    return Simulation(
        Kubelet(state, node or _assumed_node(state, max_pods=max_pods, all_pods=pods is not None), (*known, *others)),
        object=node is not None,
        all_pods=pods is not None,
        max_pods=max_pods,
        would_not_start=would_not_start,
    )


def with_reserved_cpus(node: Node, state: NodeState) -> Node:
    """The Node as its kubelet would publish it with the CPUs that the settings of ``state`` reserve."""
    return replace(node, allocatable={**node.allocatable, CPU: node_allocatable(state)[CPU]})


def with_settings(state: NodeState, kubelet: KubeletSettings) -> NodeState:
    """The node as if its kubelet had been started with these settings."""
    # The Memory Manager's state follows the old reservations. None has replay rebuild it from the blocks.
    memory = None if kubelet.reserved_memory != state.kubelet.reserved_memory else state.memory
    return replace(state, kubelet=kubelet, memory=memory)


def _assumed_node(state: NodeState, *, max_pods: bool, all_pods: bool) -> Node:
    """The Node of which only the machine and the settings are known; what is not known is without limit.

    Of a node of a cluster, whose pods are not all known, nothing counts as set aside that is not known to be.
    """
    amounts = node_allocatable(state) if all_pods else node_allocatable(state, set_aside=0)
    unknown = [EPHEMERAL_STORAGE, *([] if max_pods else [PODS])]
    return Node(state.name, allocatable={**amounts, **dict.fromkeys(unknown, MAX_INT64 * 1000)})


def _holder(holder: PodAllocation) -> Pod:
    """A pod that requests what the containers of this one hold exclusively.

    Init containers may hold other CPUs than the containers after them and request no more by that.
    """
    if holder.cpus or holder.memory:
        whole = ContainerAllocation("pod", cpus=holder.cpus, memory=holder.memory)
        devices = tuple(replace(container, cpus=0, memory=()) for container in holder.containers)
        containers = (whole, *devices)
    else:
        containers = holder.containers
    return Pod(holder.namespace, holder.name, holder.uid, tuple(map(_held, containers)))


def _held(container: ContainerAllocation) -> Container:
    amounts: dict[str, int] = {CPU: container.cpus.bit_count()}
    for block in container.memory:
        amounts[block.resource] = amounts.get(block.resource, 0) + block.size
    for devices in container.devices:
        amounts[devices.resource] = amounts.get(devices.resource, 0) + len(devices.ids)
    kind = ContainerKind.INIT if container.init else ContainerKind.APP
    requests = {resource: amount * 1000 for resource, amount in amounts.items() if amount}
    return Container(container.name, kind, Resources(requests))
