"""The encoding that NUMA-aware schedulers decode. The figures are those of the format's own tests."""

import random

import pytest
from tests.seeds import SEED

from topomend.model.nodes.zone import Placement
from topomend.publish.numa_placement import _hash, numa_placement, vector

LETTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\')


def placed(*names: tuple[str, str, int]) -> list[Placement]:
    """Containers by namespace, pod and NUMA node."""
    return [Placement(namespace, pod, "cnt1", node) for namespace, pod, node in names]


@pytest.mark.parametrize(
    ("names", "expected"), [(("", "", ""), 11145182160106660097), (("ns", "pod", "cnt"), 9468815510407277218)]
)
def test_containers_are_ordered_by_the_hash_of_their_names(names: tuple[str, str, str], expected: int) -> None:
    assert _hash(Placement(*names, 0)) == expected


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([], ""),
        ([1, 3, 7, 42], "#$'H"),
        ([0, 4, 8, 10], "!''$"),
        ([100, 108, 116], "fI++"),
        ([2000, 2008], "gk3+"),
    ],
)
def test_a_vector_is_written_as_its_format_has_it(places: list[int], text: str) -> None:
    assert vector(places) == text


ONE, TWO, THREE = ("ns1", "pod1", 0), ("ns1", "pod2", 0), ("ns1", "pod3", 0)


@pytest.mark.parametrize(
    ("names", "numa_nodes", "metadata", "vectors"),
    [
        ([], 2, "npv0v001::ve=leb89::cc=0::nn=2::bn=0", {}),
        ([ONE, TWO, THREE], 1, "npv0v001::ve=leb89::cc=3::nn=1::bn=0", {}),
        ([ONE, TWO, TWO], 2, "npv0v001::ve=leb89::cc=2::nn=2::bn=0", {}),
        ([ONE, TWO, THREE, ("ns2", "pod1", 1)], 2, "npv0v001::ve=leb89::cc=4::nn=2::bn=0", {1: "#"}),
        ([ONE, TWO, ("ns2", "pod1", 1), ("ns2", "pod2", 1)], 2, "npv0v001::ve=leb89::cc=4::nn=2::bn=0", {1: "!%"}),
        (
            [ONE, ("ns2", "pod1", 1), ("ns2", "pod2", 1), ("ns2", "pod3", 1)],
            2,
            "npv0v001::ve=leb89::cc=4::nn=2::bn=1",
            {0: "$"},
        ),
        (
            [ONE, TWO, THREE, ("ns2", "pod4", 1), ("ns3", "pod5", 2)],
            4,
            "npv0v001::ve=leb89::cc=5::nn=4::bn=0",
            {1: "!", 2: "'"},
        ),
    ],
)
def test_the_busiest_numa_node_is_left_out_and_the_lowest_of_several(
    names: list[tuple[str, str, int]], numa_nodes: int, metadata: str, vectors: dict[int, str]
) -> None:
    encoded = numa_placement(placed(*names), numa_nodes)
    assert (encoded.metadata, encoded.vectors) == (metadata, vectors)


def test_a_large_machine_with_gaps_between_its_ids_is_written_as_the_formats_own_encoder_does() -> None:
    """The answer of numaplacement's Encoder (commit 05c4e97), whose Decoder read ours of 5,000 random nodes."""
    nodes = (0, 8, 33, 8, 0, 8, 8)
    containers = [Placement(f"ns{index % 5}", f"web-{index}", f"c{index % 2}", nodes[index % 7]) for index in range(90)]
    encoded = numa_placement(containers, 34)
    assert encoded.metadata == "npv0v001::ve=leb89::cc=90::nn=34::bn=8"
    assert encoded.vectors == {0: "%''+'#.##%##$$%%%$##%,'-$#", 33: "!(#$,,*)8%0%("}


def decoded(text: str) -> list[int]:
    """The places of a vector: a letter of the last 25 goes before another one of its number."""
    places, number, has_more = [0], 0, False
    for letter in text:
        digit = LETTERS.index(letter)
        if digit >= 64:
            number, has_more = number * 25 + digit - 64, True
        else:
            places.append(places[-1] + number * 64 + digit + (64 if has_more else 0))
            number, has_more = 0, False
    return places[1:]


def test_random_placements_are_read_back() -> None:
    source = random.Random(SEED)
    for _ in range(50):
        nodes = source.randint(1, 16)
        names = [
            (f"ns{number % 7}", f"pod{number}", source.randrange(nodes)) for number in range(source.randint(1, 3000))
        ]
        containers = placed(*names)
        encoded = numa_placement(containers, nodes)
        order = sorted(containers, key=_hash)
        busiest = int(encoded.metadata.rpartition("=")[2])
        read = dict.fromkeys(range(len(order)), busiest)
        for node, text in encoded.vectors.items():
            read |= dict.fromkeys(decoded(text), node)
        assert [read[place] for place in range(len(order))] == [container.numa_node for container in order]
