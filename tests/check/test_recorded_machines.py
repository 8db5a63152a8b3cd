"""No false alarm on recorded machines, odd and wide ones among them, with the settings that a careful user gives them.

They are not part of the project; the test runs if they are stored beside it.
"""

from dataclasses import replace

import pytest
from tests.builders import node_state
from tests.check.cluster import codes, facts_of, node_object, published
from verify.oracle.random_cases.recorded import RECORDED, unpacked

from topomend.discover.host import read_host
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node_state import NodeState
from topomend.replay.gates import DEFAULT_MAX_NUMA_NODES

pytestmark = pytest.mark.skipif(not RECORDED, reason="no recorded machines beside the project (../shared/data/hwloc)")

TRUE_ALARMS = {"nvidiagpunumanodes": {"TM217"}, "256ia64-64n2s2c": {"TM217"}}
"""The first aligned pod crashes the kubelet of NUMA nodes with ids beyond its masks, and hangs that of 64 of them."""


def careful_state(machine: Machine) -> NodeState:
    """CPUs and memory aligned; one core reserved, of the NUMA node that has most."""
    largest = max(machine.cpus_of_numa_node.values(), key=int.bit_count)
    core = next(core for core in machine.cores if core.threads & largest)
    size = 64 << 20
    home = max(machine.numa_nodes, key=lambda numa_node: numa_node.memory)
    is_wide = len(machine.numa_nodes) > DEFAULT_MAX_NUMA_NODES
    settings = KubeletSettings(
        topology_manager_policy="single-numa-node",
        topology_manager_policy_options={"max-allowable-numa-nodes": "64"} if is_wide else {},
        cpu_manager_policy="static",
        reserved_cpus=core.threads,
        memory_manager_policy="Static" if home.memory > size else "None",
        reserved_memory=(MemoryReservation(home.id, "memory", size),) if home.memory > size else (),
    )
    return replace(node_state(), machine=machine, kubelet=settings)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_machine_with_careful_settings_raises_no_false_alarm(name: str) -> None:
    state = careful_state(read_host(unpacked(name)).machine)
    assert set(codes(facts_of([node_object(state)], [published(state)]), "TM2")) == TRUE_ALARMS.get(name, set())
