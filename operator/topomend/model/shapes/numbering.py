"""How firmware and Linux number the CPUs of a regular machine.

Most machines number the first threads of all cores, one NUMA node after the other, and then the second threads. Some
firmware deals CPUs out to NUMA nodes in turn; others, and many virtual machines, number a core's threads together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

INTERLEAVED, ADJACENT = "interleaved", "adjacent"
NUMBERINGS = (INTERLEAVED, ADJACENT)


@dataclass(frozen=True, slots=True)
class NumberedCPU:
    """A CPU's number, its NUMA node, and its core's index within that node."""

    id: int
    numa_node: int
    core: int


def number_cpus(numa_nodes: int, cores: int, threads: int, single: int, how: frozenset[str]) -> Iterator[NumberedCPU]:
    """The CPUs of ``numa_nodes`` with ``cores`` of ``threads`` threads each and ``single`` more of one thread.

    The cores of one thread come after the others, as on processors with two kinds of cores.
    """
    places = [(node, core) for node in range(numa_nodes) for core in range(cores + single)]
    if single or INTERLEAVED in how:
        in_turn = INTERLEAVED in how
        places.sort(key=lambda place: (place[1] >= cores, place[1] if in_turn else 0, place))
    counts = [threads if core < cores else 1 for _, core in places]
    numbers = [(index, thread) for index, count in enumerate(counts) for thread in range(count)]
    if ADJACENT not in how:
        numbers.sort(key=lambda number: number[1])
    for cpu, (index, _) in enumerate(numbers):
        yield NumberedCPU(cpu, *places[index])
