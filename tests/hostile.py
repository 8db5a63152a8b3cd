"""Machines that a hostile agent may publish: replay of a pod on them takes as long as can be."""

import random
from dataclasses import replace

from tests.builders import kubelet_settings, node_state

from topomend.model.nodes.node_state import NodeState

OPTIONS = "prefer-closest-numa-nodes=true max-allowable-numa-nodes=64"


def costly_state(name: str = "a", numa_nodes: int = 33, *, cores: int = 1, seed: int = 1) -> NodeState:
    """A node of many NUMA nodes with random distances and amounts, whose Memory Manager is asked for many of them.

    An ordinary pod with 2Gi takes several tenths of a second there.
    """
    chance = random.Random(seed)
    settings = kubelet_settings(
        "restricted",
        options=OPTIONS,
        cpu_manager="none",
        reserved_cpus="",
        memory_manager="Static",
        reserved_memory="1Mi",
    )
    state = node_state(f"numa:{numa_nodes} cores:{cores} memory:256Mi", name=name)
    nodes = tuple(
        replace(
            node,
            memory=chance.randint(200, 300) << 20,
            distances=tuple(10 if other == node.id else chance.randint(11, 255) for other in range(numa_nodes)),
        )
        for node in state.machine.numa_nodes
    )
    return replace(state, kubelet=settings, machine=replace(state.machine, numa_nodes=nodes))
