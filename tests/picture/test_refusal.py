"""Why a pod does not fit: each NUMA node's amount beside what is asked, in the drawing and in the table."""

from tests.builders import node_state, pod, running
from tests.picture.drawn import svg_of, texts

from topomend.picture.drawing.document import Section
from topomend.picture.refusal import MOST_DRAWN, Asked, Reply, amounts_of, section_of

POD = pod("p", "cpu=4 memory=1Gi", "init cpu=1 memory=1Mi")


def asked(*replies: Reply) -> Section:
    return section_of(Asked(POD, "ns/p", replies))


def test_each_numa_node_has_what_is_free_and_what_is_lacking() -> None:
    state = node_state(memory_manager="Static", reserved_memory="1Gi,1Gi")
    state = running(state, pod("x", "cpu=3 memory=6Gi"), pod("y", "cpu=1 memory=2Gi"))
    section = asked(Reply("a", False, "a refuses it", amounts_of(state, POD), "would be admitted with 3 CPUs"))  # noqa: FBT003
    shown = texts(svg_of(section))
    assert {"asks 4", "✗ NUMA 0: 0 free, lacks 4", "✗ NUMA 1: 3 free, lacks 1"} <= set(shown)
    assert {"asks 1Gi", "✓ NUMA 0: 1Gi free", "✓ NUMA 1: 5Gi free", "✗ does not admit it"} <= set(shown)
    assert "→ would be admitted with 3 CPUs" in shown
    [row] = section.tables[1].rows
    *answer, amounts, remedy = row
    assert (answer, remedy) == (["a", "no", "a refuses it"], "would be admitted with 3 CPUs")
    cpus, memory = amounts.split("; ")
    assert cpus == "cpu: asked 4, free 0 on NUMA 0, 3 on NUMA 1"
    assert memory == "memory: asked 1Gi, free 1Gi on NUMA 0, 5Gi on NUMA 1"


def test_what_the_containers_ask_for_is_said() -> None:
    [table, *_] = asked().tables
    assert table.rows == [("c0", "cpu 4, memory 1Gi"), ("c1 (init)", "cpu 1, memory 1Mi")]
    assert {"cpu 4", "memory 1Gi", "c1 (init)"} <= set(texts(svg_of(asked())))


def test_a_node_that_admits_and_one_that_is_not_known_are_told_apart_without_colour() -> None:
    section = asked(Reply("a", True, "on a NUMA 1"), Reply("b", None, "its agent is silent"))  # noqa: FBT003
    assert {"✓ admits it", "on a NUMA 1", "? not known", "its agent is silent"} <= set(texts(svg_of(section)))
    assert [row[1] for row in section.tables[1].rows] == ["yes", "not known"]


def test_of_many_nodes_some_are_drawn_and_all_are_in_the_table() -> None:
    section = asked(*(Reply(f"n{number}", False, "full") for number in range(MOST_DRAWN + 3)))  # noqa: FBT003
    shown = texts(svg_of(section))
    assert shown.count("full") == MOST_DRAWN
    assert "and 3 more nodes do not: the table has them" in shown
    assert len(section.tables[1].rows) == MOST_DRAWN + 3


def test_a_node_that_admits_the_pod_has_no_refused_amounts() -> None:
    assert amounts_of(node_state(), pod("p", "cpu=1 memory=1Mi")) == ()
