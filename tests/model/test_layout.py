"""What the kubelet makes of caches and cores is computed alike for every machine."""

from topomend.model.bitmask import format_id_list, mask_of
from topomend.model.layout import LogicalCPU, assemble
from topomend.model.machine import CoreKind, NUMANode

NODES = (NUMANode(0, 8 << 30), NUMANode(1, 8 << 30))


def caches(cpus: list[LogicalCPU]) -> list[int | None]:
    return [core.l3_cache for core in assemble(cpus, NODES).cores]


def test_a_cache_of_a_whole_numa_node_is_none_that_the_kubelet_considers() -> None:
    assert caches([LogicalCPU(0, 0, 0, 0, 7), LogicalCPU(1, 0, 0, 1, 7)]) == [None, None]


def test_caches_within_a_numa_node_and_across_several_are_considered() -> None:
    within = [LogicalCPU(0, 0, 0, 0, 7), LogicalCPU(1, 0, 0, 1, 8)]
    across = [LogicalCPU(0, 0, 0, 0, 7), LogicalCPU(1, 1, 0, 1, 7)]
    assert caches(within) == [7, 8]
    assert caches(across) == [7, 7]


def test_unlike_cores_make_the_kubelet_count_a_cache_of_their_numa_node() -> None:
    """Two cores of three CPUs: neither 2 * 2 nor 2 * 1 is 3."""
    hybrid = [LogicalCPU(0, 0, 0, 0, 7, "core"), LogicalCPU(1, 0, 0, 0, 7, "core"), LogicalCPU(2, 0, 0, 1, 7, "atom")]
    assert caches(hybrid) == [7, 7]
    hardware = assemble(hybrid, NODES).hardware
    assert [format_id_list(cache) for cache in hardware.l3_caches] == ["0-2"]
    assert hardware.core_kinds == (CoreKind(mask_of([0, 1]), "core"), CoreKind(mask_of([2]), "atom"))


def test_a_core_number_belongs_to_its_socket() -> None:
    cores = assemble([LogicalCPU(0, 0, 0, 5), LogicalCPU(1, 1, 1, 5)], NODES).cores
    assert [(format_id_list(core.threads), core.socket) for core in cores] == [("0", 0), ("1", 1)]
