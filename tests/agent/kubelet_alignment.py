"""The alignment of containers by their kubelet's own state: an independent judgement to compare with."""

from collections.abc import Mapping
from typing import Any

from tests.agent.kubelet_allocations import Container

from topomend.alignment.container import align
from topomend.model.bitmask import CPUSet, members, parse_id_list
from topomend.model.machine import Machine
from topomend.model.nodes.node_state import NodeState

Alignments = Mapping[tuple[str, str], tuple[str, frozenset[int]]]
"""By pod and container, the alignment and the NUMA nodes in use."""


def kubelet_alignments(machine: Machine, holdings: Mapping[str, Mapping[str, Container]], pool: CPUSet) -> Alignments:
    """The alignments of containers that hold ``holdings`` while the others' CPUs are ``pool``."""
    return {
        (pod, name): _alignment(machine, container, pool)
        for pod, containers in holdings.items()
        for name, container in containers.items()
    }


def _alignment(machine: Machine, container: Container, pool: CPUSet) -> tuple[str, frozenset[int]]:
    cpus, devices, memory = container
    numa_node = {cpu: core.numa_node for core in machine.cores for cpu in members(core.threads)}
    nodes = {numa_node[cpu] for cpu in members(parse_id_list(cpus) or pool)}
    nodes |= {node for _, its, _ in memory for node in its}
    # The sandbox names a device gpu-<NUMA node>-<index>.
    nodes |= {int(device.split("-")[1]) for _, ids in devices for device in ids}
    if len(nodes) == 1:
        return "numa-node", frozenset(nodes)
    if not cpus:
        return "floating", frozenset(nodes)
    sockets = {core.socket for core in machine.cores if core.numa_node in nodes}
    return ("socket" if len(sockets) == 1 else "split"), frozenset(nodes)


def published_alignments(state: NodeState, *, with_init: bool) -> Alignments:
    """The alignments that ``kubectl numa aligned`` tells of a published state."""
    answers: dict[tuple[str, str], Any] = {}
    for pod in state.pods:
        for container in pod.containers:
            if with_init or not container.init:
                answer = align(state, pod, container.name)
                answers[pod.name, container.name] = (answer.alignment.value, frozenset(members(answer.numa_nodes)))
    return answers
