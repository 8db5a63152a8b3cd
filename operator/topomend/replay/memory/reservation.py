"""The ``reservedMemory`` with which a static Memory Manager starts: to the byte what the kubelet keeps from pods.

The kubelet demands the sum alone (memory_manager.go:validateReservedMemory); where it is reserved is the
administrator's choice, so what is written stays as far as it can.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from topomend.model.machine import Machine, NUMANode
from topomend.model.nodes.kubelet import MemoryReservation

_MEMORY = "memory"
_MEBIBYTE = 1 << 20


def corrected(kept: int, given: Sequence[MemoryReservation], machine: Machine) -> tuple[MemoryReservation, ...]:
    """Reservations of ``kept`` bytes in all; empty if the machine has not so much, or nothing is kept.

    Huge pages are left out: Node Allocatable keeps none of them. The NUMA node that reserves most takes the difference.
    If it cannot, or nothing is given, all NUMA nodes with CPUs reserve the same share of their memory, in MiB but
    for the largest.
    """
    room = {node.id: _regular(node) for node in machine.numa_nodes}
    shares = _adjusted(kept, given, room)
    if not _fits(shares, room):
        shares = _in_proportion(kept, {node: room[node] for node in machine.cpus_of_numa_node if room.get(node, 0) > 0})
    return tuple(MemoryReservation(node, _MEMORY, size) for node, size in sorted(shares.items()) if size)


def _regular(node: NUMANode) -> int:
    """The bytes of the NUMA node that are in no huge page."""
    return node.memory - sum(pool.size * pool.count for pool in node.hugepages)


def _adjusted(kept: int, given: Sequence[MemoryReservation], room: Mapping[int, int]) -> Counter[int]:
    shares = Counter[int]()
    for each in given:
        if each.resource == _MEMORY and each.numa_node in room:
            shares[each.numa_node] += each.size
    if shares:
        shares[max(shares, key=lambda node: shares[node])] += kept - shares.total()
    return shares


def _in_proportion(kept: int, room: Mapping[int, int]) -> Counter[int]:
    total = sum(room.values())
    if not 0 < kept <= total:
        return Counter()
    shares = Counter({node: kept * size // total // _MEBIBYTE * _MEBIBYTE for node, size in room.items()})
    for node in sorted(room, key=lambda node: -room[node]):
        shares[node] += min(kept - shares.total(), room[node] - shares[node])
    return shares


def _fits(shares: Mapping[int, int], room: Mapping[int, int]) -> bool:
    return bool(shares) and all(0 <= size <= room[node] for node, size in shares.items())
