"""Where each container has what, in letters, and how many are how well aligned."""

from dataclasses import replace

from tests.builders import node_state, pod, snapshot_of
from tests.picture.drawn import svg_of, texts, titles

from topomend.alignment.container import Alignment, ContainerAlignment, Tally
from topomend.alignment.running import RunningContainer, judge
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.running_pod import RunningPod
from topomend.picture.aligned import MOST_DRAWN, section_of_containers, section_of_groups
from topomend.picture.drawing.document import Table

TABLE = Table("table", ("a",), [])


def judged(state: NodeState, *pods: Pod) -> list[RunningContainer]:
    running = [
        RunningPod(each, state.name, frozenset(container.name for container in each.containers), None) for each in pods
    ]
    return list(judge(snapshot_of(state), running))


def test_each_numa_node_has_letters_for_what_the_container_has_there() -> None:
    shape = "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1"
    pods = [pod("near", "cpu=2 memory=1Gi vendor.com/gpu=1"), pod("wide", "cpu=4 memory=1Gi")]
    settings = {"memory_manager": "Static", "reserved_memory": "1Gi,1Gi"}
    state = node_state(shape, "best-effort", pods=pods, **settings)
    section = section_of_containers(judged(state, *pods), TABLE)
    shown = texts(svg_of(section))
    assert {"ns/near c0 on a", "CMD", "NUMA 0", "NUMA 1"} <= set(shown)
    assert section.drawing
    assert "numa-node" in section.drawing.description
    assert section.tables == [TABLE]


def test_shared_cpus_and_unpinned_containers_are_told() -> None:
    state = node_state(pods=[])
    [loose] = judged(state, pod("loose", "request:cpu=1"))
    floating = replace(loose, aligned=ContainerAlignment(Alignment.FLOATING, numa_nodes=0b10, distance=12))
    shown = texts(svg_of(section_of_containers([loose, floating], TABLE)))
    assert "unpinned NotGuaranteed" in shown
    assert "floating distance 12 NotGuaranteed" in shown
    assert "·" in shown


def test_of_many_containers_some_are_drawn_and_without_any_there_is_still_a_picture() -> None:
    [one] = judged(node_state(), pod("p", "request:cpu=1"))
    assert "and 2 more: the table has them" in texts(svg_of(section_of_containers([one] * (MOST_DRAWN + 2), TABLE)))
    assert texts(svg_of(section_of_containers([], TABLE)))[0] == "Running containers"


def test_an_agent_that_names_a_numa_node_of_a_high_number_makes_no_endless_row() -> None:
    [one] = judged(node_state(), pod("p", "request:cpu=1"))
    far = replace(one, aligned=ContainerAlignment(Alignment.SPLIT, numa_nodes=1 << 16000 | 0b10))
    shown = texts(svg_of(section_of_containers([far], TABLE)))
    assert [words for words in shown if words.startswith("NUMA ")] == ["NUMA 0", "NUMA 1", "NUMA 16000"]


def test_groups_have_a_bar_of_their_counts() -> None:
    tally = Tally()
    for alignment in (Alignment.NUMA_NODE, Alignment.NUMA_NODE, Alignment.SPLIT):
        tally.add(ContainerAlignment(alignment))
    svg = svg_of(section_of_groups([("gpu-01", tally)], TABLE))
    assert {"gpu-01", "numa-node 2", "split 1"} <= set(texts(svg))
    assert {"2 numa-node", "1 split"} <= set(titles(svg))
    assert "0 socket" not in titles(svg)
