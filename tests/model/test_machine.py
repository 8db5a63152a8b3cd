import pytest

from topomend.model.bitmask import mask_of
from topomend.model.machine import Core, Machine, NUMANode, hugepage_resource


@pytest.mark.parametrize(
    ("size", "resource"),
    [
        (2 << 20, "hugepages-2Mi"),
        (1 << 30, "hugepages-1Gi"),
        (64 << 10, "hugepages-64Ki"),
        (512 << 20, "hugepages-512Mi"),
    ],
)
def test_huge_pages_have_the_name_that_the_api_gives_them(size: int, resource: str) -> None:
    assert hugepage_resource(size) == resource


def test_a_core_without_an_l3_cache_counts_its_socket_as_the_cache() -> None:
    machine = Machine(
        (NUMANode(0, 1 << 30),), (Core(mask_of([0]), socket=3, numa_node=0), Core(mask_of([1]), 3, 0, l3_cache=7))
    )
    assert machine.cpus_of_l3_cache == {3: mask_of([0]), 7: mask_of([1])}


def test_a_numa_node_without_cpus_is_in_the_mask_but_has_no_cpu_set() -> None:
    machine = Machine((NUMANode(0, 1), NUMANode(2, 1)), (Core(mask_of([0, 4]), 0, 0),))
    assert machine.numa_mask == mask_of([0, 2])
    assert machine.cpus_of_numa_node == {0: mask_of([0, 4])}
    assert machine.memory_only == mask_of([2])


def test_a_core_is_named_by_its_lowest_thread() -> None:
    assert Core(mask_of([9, 5]), 0, 0).id == 5
