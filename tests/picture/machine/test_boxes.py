"""Which box is in which, on machines as they are and as Linux contradicts itself."""

from collections import Counter
from dataclasses import replace

from topomend.model.machine import Core, Hardware, Machine, NUMANode
from topomend.model.shapes.shape import parse_shape
from topomend.picture.machine.boxes import Box, Level, boxes_of, cpus_text, label_of, walk


def levels(box: Box) -> list[str]:
    """The way to the first core."""
    return [box.level.name, *(levels(box.inside[0]) if box.inside else [])]


def machine(shape: str) -> Machine:
    return parse_shape(shape).machine()


def test_a_package_has_numa_nodes_and_these_have_caches_and_cores() -> None:
    boxes = boxes_of(machine("sockets:2 numa:2 cores:4 threads:2 l3:2"))
    assert [levels(box) for box in boxes.outermost] == [["PACKAGE", "NUMA", "L3", "CORE"]] * 2
    assert [label_of(box) for box in boxes.outermost[1].inside] == ["NUMA 2", "NUMA 3"]
    assert boxes.crossing == ()


def test_a_numa_node_may_have_several_packages() -> None:
    cores = tuple(Core(1 << number, number // 2, 0) for number in range(4))
    boxes = boxes_of(Machine((NUMANode(0, 1 << 30),), cores))
    assert levels(boxes.outermost[0]) == ["NUMA", "PACKAGE", "CORE"]
    assert len(boxes.outermost[0].inside) == 2


def test_each_cpu_is_in_one_core_and_each_core_there_once() -> None:
    shown = machine("sockets:2 numa:2 cores:4 threads:2")
    cores = [box for box in walk(boxes_of(shown).outermost) if box.level is Level.CORE]
    assert sum(box.cpus for box in cores) == shown.cpus
    assert len(cores) == len(shown.cores)


def test_what_linux_groups_otherwise_than_the_kubelet_is_drawn_as_linux_has_it() -> None:
    shown = machine("cores:4 threads:1")
    hardware = Hardware(cores=(0b11, 0b1100), sockets=(0b11, 0b1100), dies=(0b1, 0b10), clusters=(0b11,))
    found = [box.level for box in walk(boxes_of(replace(shown, hardware=hardware)).outermost)]
    assert found.count(Level.CORE) == found.count(Level.PACKAGE) == found.count(Level.DIE) == 2
    assert found.count(Level.CLUSTER) == 1


def test_a_box_that_crosses_others_is_told_and_hides_none_of_them() -> None:
    shown = machine("sockets:2 cores:4")
    crossing = replace(shown, hardware=Hardware(l3_caches=(0b00111100,)))
    boxes = boxes_of(crossing)
    assert [(label_of(box), cpus_text(box.cpus)) for box in boxes.crossing] == [("L3", "CPUs 2-5")]
    assert len([box for box in walk(boxes.outermost) if box.level is Level.CORE]) == 8


def test_a_machine_of_thousands_of_cpus_has_every_box() -> None:
    boxes = boxes_of(machine("sockets:64 cores:64 memory:1Gi"))
    assert Counter(box.level for box in walk(boxes.outermost)) == {
        Level.PACKAGE: 64,
        Level.NUMA: 64,
        Level.L3: 64,
        Level.CORE: 4096,
    }


def test_a_numa_node_without_cpus_has_no_box_and_a_core_no_label() -> None:
    boxes = list(walk(boxes_of(machine("cores:1 cpuless:1Gi")).outermost))
    assert [box.id for box in boxes if box.level is Level.NUMA] == [0]
    assert [label_of(box) for box in boxes if box.level is Level.CORE] == [""]
    assert cpus_text(0) == "no CPUs"
