"""A pool's drawing has every CPU of every node, and what of what is free typical pods cannot use."""

from tests.builders import node_state, pod, snapshot_of
from tests.picture.drawn import of_class, svg_of, texts, titles

from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.summary import of_file
from topomend.decide.pools.pools import pools
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.scheduling import Placement
from topomend.picture.drawing.document import Section
from topomend.picture.pool import PoolSubject, amount_text, section_of

HALVED = node_state(name="a", pods=[pod("x", "cpu=2 memory=1Mi"), pod("y", "cpu=2 memory=1Mi")])
EMPTY = node_state("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1", name="b")


def drawn(*states: NodeState, typical: str = "cpu=4 memory=1Mi") -> Section:
    asked = [RequestedPod(pod("p", typical), Placement(), {}, 1)] if typical else []
    [pool] = pools(snapshot_of(*states), of_file(asked))
    return section_of(PoolSubject(pool, states, ["said"]))


def test_every_cpu_of_every_node_is_a_dot_that_is_free_held_or_reserved() -> None:
    [small] = of_class(svg_of(drawn(HALVED)), "small")
    counts: dict[str, int] = {}
    for path in small.iter():
        if number := path.get("data-cpus"):
            kind = path.attrib["class"].split()[-1], "v1" in path.attrib["d"]
            counts[str(kind)] = counts.get(str(kind), 0) + int(number)
    assert counts == {"('free', False)": 3, "('taken', False)": 4, "('taken', True)": 1}
    assert "a: 3 of 8 CPUs free" in titles(small)


def test_the_bar_of_a_resource_has_the_part_that_is_unusable() -> None:
    section = drawn(HALVED, EMPTY)
    assert "10 free, 3 of it unusable: 30% fragmented" in texts(svg_of(section))
    assert {"7 usable", "3 unusable"} <= set(titles(svg_of(section)))
    assert section.drawing
    assert "cpu 30%" in section.drawing.description


def test_without_typical_pods_no_share_is_told() -> None:
    section = drawn(HALVED, typical="")
    assert "3 free" in texts(svg_of(section))
    assert section.drawing
    assert "no share is known" in section.drawing.description


def test_the_table_has_what_is_free_on_each_numa_node() -> None:
    [table] = drawn(HALVED, EMPTY).tables
    assert table.rows == [
        ("a", "8", "3", "NUMA 0: 1, NUMA 1: 2", "-"),
        ("b", "8", "7", "NUMA 0: 3, NUMA 1: 4", "vendor.com/gpu 1 of 1"),
    ]


def test_amounts_are_as_people_write_them() -> None:
    assert [amount_text("cpu", 3.0), amount_text("cpu", 3.25), amount_text("memory", 1 << 30)] == ["3", "3.2", "1Gi"]
