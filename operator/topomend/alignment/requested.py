"""Whether a node aligns a pod as its creator asks by annotation, whatever the Topology Manager's policy there.

Each container with exclusive CPUs or devices is to be on one NUMA node, as under the kubelet's policy single-numa-node
with the scope container. A pod that gets neither is not aligned. Memory alone does not count: a container whose CPUs
are the shared pool runs anywhere. Owns these rules and their wording. Leaves how one container is aligned to
``container``, and what the kubelet decides to ``replay``.
"""

from dataclasses import dataclass

from topomend.alignment.container import Alignment, ContainerAlignment, align_allocation
from topomend.alignment.pinning import why_shared_cpus
from topomend.explain.trace_text import numa_text
from topomend.model.bitmask import NUMAMask
from topomend.model.nodes.node_state import ContainerAllocation, NodeState
from topomend.model.pods.pod import SINGLE_NUMA_NODE, Pod
from topomend.replay.admission import admit, allocation_of
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.admission import FastAdmission, FastPlacement, FastRefusal
from topomend.wire.group import ALIGNMENT_ANNOTATION


@dataclass(frozen=True)
class ContainerPlaces:
    """Where a container is: in words, and all of its NUMA nodes."""

    words: str
    numa_nodes: NUMAMask


class _AlignedAdmission(FastAdmission):
    """The answers for a pod that asks for alignment: a node that admits it elsewhere than it asks does not count."""

    def admits(self, node: NodeState) -> bool:
        """Whether the kubelet of ``node`` would admit the pod, and align it."""
        if not super().admits(node):
            return False
        return isinstance(self.outcome(node), FastPlacement) or self._is_admitted_aligned(node)

    def outcome(self, node: NodeState) -> FastPlacement | FastRefusal | None:
        """As of any pod, but None also for a placement that may not be an alignment.

        If it is on one NUMA node and has CPUs, these and everything else are from there: one container asks for
        anything (``FastAdmission``).
        """
        outcome = super().outcome(node)
        if isinstance(outcome, FastPlacement) and not (outcome.cpus and outcome.numa_nodes.bit_count() == 1):
            return None
        return outcome

    def _is_admitted_aligned(self, node: NodeState) -> bool:
        verdict, after = admit(node, self.pod, self.effort)
        return verdict.admitted and is_aligned(after, self.pod)


def admission_of(pod: Pod, effort: Effort = UNLIMITED) -> FastAdmission:
    """Which nodes admit the pod and, if it asks for that, align it."""
    return _AlignedAdmission(pod, effort) if pod.single_numa_node else FastAdmission(pod, effort)


def is_aligned(state: NodeState, pod: Pod) -> bool:
    """Whether the node, which holds ``pod``, aligns it as it asks; True for one that asks for nothing."""
    if not pod.single_numa_node:
        return True
    containers = _with_exclusive_resources(state, pod)
    return bool(containers) and all(_is_on_one(aligned) for _, aligned in containers)


def aligned_numa_nodes(state: NodeState, pod: Pod) -> NUMAMask:
    """The NUMA nodes of the containers that count, on a node that holds ``pod``."""
    mask = 0
    for _, aligned in _with_exclusive_resources(state, pod):
        mask |= aligned.numa_nodes
    return mask


def why_not_aligned(state: NodeState, pod: Pod) -> str:
    """What of ``pod``, which the node holds, is not on one NUMA node, as a clause; empty where all is."""
    containers = _with_exclusive_resources(state, pod)
    apart = [f"container {name}: {_places(aligned)}" for name, aligned in containers if not _is_on_one(aligned)]
    if containers:
        return "; ".join(apart)
    asking = next((container for container in pod.containers if container.resources.requests), None)
    why = why_shared_cpus(state, pod, asking) if asking else None
    return f"it gets neither exclusive CPUs nor devices{f': {why.message}' if why else ''}"


def places_text(state: NodeState, pod: Pod) -> str:
    """Where each container of ``pod`` is that counts, on a node that holds it."""
    containers = _with_exclusive_resources(state, pod)
    return "; ".join(f"container {name}: {_places(aligned)}" for name, aligned in containers)


def places_by_container(state: NodeState, pod: Pod) -> dict[str, ContainerPlaces]:
    """Where each container of ``pod`` is that counts, by its name, on a node that holds the pod."""
    containers = _with_exclusive_resources(state, pod)
    return {name: ContainerPlaces(_places(aligned), aligned.numa_nodes) for name, aligned in containers}


def wrong_value(pod: Pod) -> str:
    """What is wrong with the annotation of ``pod``, in one line; empty where it has none or a right one."""
    if pod.alignment in ("", SINGLE_NUMA_NODE):
        return ""
    return (
        f"{ALIGNMENT_ANNOTATION}: {pod.alignment!r} means nothing and is ignored; the one value is {SINGLE_NUMA_NODE!r}"
    )


def _with_exclusive_resources(state: NodeState, pod: Pod) -> list[tuple[str, ContainerAlignment]]:
    allocation = allocation_of(state, pod.namespace, pod.name, pod.uid)
    if allocation is None:
        return []
    own = {container.name: container for container in allocation.containers}
    names = [container.name for container in pod.containers if allocation.cpus or container.name in own]
    judged = ((name, align_allocation(state, allocation, own.get(name, ContainerAllocation(name)))) for name in names)
    return [
        (name, aligned)
        for name, aligned in judged
        if aligned.cpus or any(resource.devices for resource in aligned.allocated)
    ]


def _is_on_one(aligned: ContainerAlignment) -> bool:
    return aligned.alignment is Alignment.NUMA_NODE


def _places(aligned: ContainerAlignment) -> str:
    places = [
        f"{allocated.resource} on {numa_text(allocated.numa_nodes)}"
        for allocated in aligned.allocated
        if allocated.numa_nodes
    ]
    if aligned.pool:
        places.insert(0, f"shared CPUs on {numa_text(aligned.numa_nodes)}")
    return ", ".join(places)
