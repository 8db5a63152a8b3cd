"""The drawing of one node: its boxes, its marks and its words."""

from dataclasses import replace

from tests.builders import guaranteed_pod, node_state, pod, pod_allocation
from tests.picture.drawn import of_class, svg_of, svg_of_node, table_of, texts, titles

from topomend.model.machine import CoreKind, Hardware, NUMANode
from topomend.model.nodes.node_state import NodeState
from topomend.picture.machine.facts import Subject
from topomend.picture.machine.node import MOST_DISTANCES, section_of


def cells(state: NodeState) -> list[str]:
    """What is beside the pointer at each CPU that is not free."""
    return [title for title in titles(svg_of_node(state)) if title.startswith("CPU ")]


def test_each_cpu_has_the_mark_and_the_name_of_its_holder() -> None:
    state = node_state(pods=[guaranteed_pod("x", 2), guaranteed_pod("y", 1)])
    assert cells(state) == [
        "CPU 0: reserved for the system",
        "CPU 1: ns/x c0",
        "CPU 2: ns/x c0",
        "CPU 3: ns/y c0",
    ]
    svg = svg_of_node(state)
    assert [mark.text for mark in of_class(svg, "mark")] == ["R", "a", "a", "b"]
    shown = texts(svg)
    assert "NUMA 0 · 0 of 4 CPUs free" in shown
    assert "NUMA 1 · 4 of 4 CPUs free" in shown


def test_a_cpu_of_several_holders_and_one_that_is_isolated_are_told() -> None:
    shared = replace(node_state(), pods=(pod_allocation("x", "1"), pod_allocation("y", "1")))
    isolated = replace(shared, machine=replace(shared.machine, isolated=0b10))
    assert "CPU 1: shared by ns/x c0, ns/y c0, isolated" in cells(isolated)
    assert "+ shared by several" in texts(svg_of_node(shared))
    assert "dashed: isolated" in texts(svg_of_node(isolated))


def test_a_memory_bar_has_who_holds_how_much() -> None:
    state = node_state(memory_manager="Static", reserved_memory="1Gi,1Gi", pods=[pod("x", "cpu=1 memory=2Gi")])
    svg = svg_of_node(state)
    assert "memory 8Gi, 5Gi free" in texts(svg)
    assert {"1Gi reserved", "ns/x c0: 2Gi"} <= set(titles(svg))


def test_memory_over_several_numa_nodes_is_marked_with_all_who_have_a_part_of_it() -> None:
    wide = pod("x", "cpu=1 memory=10Gi")
    state = node_state(policy="best-effort", memory_manager="Static", reserved_memory="1Gi,1Gi", pods=[wide])
    shown = texts(svg_of_node(state))
    assert "a +" in shown
    assert "+ in memory: over several NUMA nodes" in shown


def test_numa_nodes_without_cpus_and_offline_cpus_are_shown() -> None:
    state = node_state("cores:4 memory:8Gi cpuless:4Gi")
    machine = replace(state.machine, offline=1 << 9)
    machine = replace(machine, numa_nodes=(*machine.numa_nodes, NUMANode(7, 1 << 30, gpu="0009:01:00.0")))
    svg = svg_of_node(replace(state, machine=machine))
    assert {"NUMA 1 · no CPUs", "NUMA 7 · memory of GPU 0009:01:00.0", "offline CPUs"} <= set(texts(svg))
    assert "CPU 9: offline" in titles(svg)
    assert len(of_class(svg, "b-numa")) == 3
    assert len(of_class(svg, "pu")) == 4


def test_kinds_of_cores_are_told_apart() -> None:
    state = node_state("cores:4 memory:8Gi")
    kinds = (CoreKind(0b0011, "core"), CoreKind(0b1100, "", 810))
    machine = replace(state.machine, hardware=Hardware(core_kinds=kinds))
    assert {"cores of kind core", "cores of capacity 810"} <= set(texts(svg_of_node(replace(state, machine=machine))))


def test_boxes_that_cross_others_are_told() -> None:
    state = node_state()
    machine = replace(state.machine, hardware=Hardware(l3_caches=(0b00111100,)))
    assert "L3: CPUs 2-5" in texts(svg_of_node(replace(state, machine=machine)))


def test_distances_are_drawn_of_few_numa_nodes_and_in_the_table_of_all() -> None:
    few, many = node_state(), node_state(f"numa:{MOST_DISTANCES + 1} cores:1 memory:1Gi")
    assert "distance" in texts(svg_of_node(few))
    assert "distance" not in texts(svg_of_node(many))
    assert len(table_of(section_of(Subject(many)), "NUMA nodes").rows[0][6].split()) == MOST_DISTANCES + 1


def test_pods_that_have_to_go_are_marked_in_drawing_and_table() -> None:
    section = section_of(Subject(node_state(pods=[guaranteed_pod("x", 2)]), going={("ns", "x")}))
    svg = svg_of(section)
    assert "a ns/x c0 · has to go" in texts(svg)
    assert len([each for each in of_class(svg, "goes") if "pu" in each.attrib["class"]]) == 2
    assert table_of(section, "Who holds").rows[0][1] == "ns/x c0 (has to go)"


def test_words_say_what_is_not_known_of_a_node() -> None:
    state = node_state(options="prefer-most-allocated-numa-node=true", gates="TopologyManagerPolicyAlphaOptions")
    words = section_of(Subject(state, problem="its agent is silent")).words
    assert "its agent is silent" in words
    assert any(line.startswith("Not modelled by replay: ") for line in words)
