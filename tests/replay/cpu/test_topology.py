"""A machine's CPUs as the CPU Manager groups them."""

from dataclasses import replace

from tests.builders import TWO_NUMA_NODES_SMT, node_state

from topomend.model.machine import Core
from topomend.replay.cpu.topology import CPUTopology, discover

MACHINE = node_state(TWO_NUMA_NODES_SMT).machine


def topology(shape: str) -> CPUTopology:
    discovered = discover(node_state(shape).machine)
    assert isinstance(discovered, CPUTopology)
    return discovered


def test_siblings_are_all_threads_of_the_cores() -> None:
    assert topology(TWO_NUMA_NODES_SMT).siblings(0b0000_0011) == 0b0011_0011


def test_the_numa_nodes_of_cpus_are_those_that_have_one_of_them() -> None:
    two = topology(TWO_NUMA_NODES_SMT)
    assert (two.numa_nodes_with(0), two.numa_nodes_with(0b0001), two.numa_nodes_with(0b0110)) == (0, 0b01, 0b11)


def test_numa_nodes_are_taken_first_unless_a_socket_has_several() -> None:
    assert topology("sockets:2 cores:4").numa_first
    assert not topology("sockets:1 numa:2 cores:4").numa_first


def test_a_machine_with_an_incomplete_core_is_not_even() -> None:
    assert topology(TWO_NUMA_NODES_SMT).is_even
    first, *others = MACHINE.cores
    incomplete = discover(replace(MACHINE, cores=(replace(first, threads=0b1), *others)))
    assert isinstance(incomplete, CPUTopology)
    assert not incomplete.is_even


def is_even(*cores: Core) -> bool:
    discovered = discover(replace(MACHINE, cores=cores))
    assert isinstance(discovered, CPUTopology)
    return discovered.is_even


def test_a_machine_is_even_where_cores_sockets_and_caches_all_have_the_average() -> None:
    assert is_even(Core(0b0011, 0, 0, l3_cache=0), Core(0b1100, 0, 0, l3_cache=1))
    assert not is_even(Core(0b0111, 0, 0), Core(0b1000, 0, 0))
    assert not is_even(Core(0b0001, 0, 0), Core(0b0010, 0, 0), Core(0b0100, 0, 0), Core(0b1000, 1, 1))
    caches = (0, 0, 0, 1)
    assert not is_even(*(Core(1 << cpu, 0, 0, l3_cache=cache) for cpu, cache in enumerate(caches)))


def test_a_machine_without_cpus_does_not_start_a_cpu_manager() -> None:
    assert discover(replace(MACHINE, cores=())) == "could not detect number of cpus"
    assert discover(replace(MACHINE, cores=(*MACHINE.cores, Core(0, 0, 0)))) == "no cpus provided"
