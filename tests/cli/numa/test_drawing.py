"""The drawing of a node; on nodes that real agents publish it is tested in tests/live."""

from dataclasses import replace

import pytest
from tests.builders import TWO_NUMA_NODES, guaranteed_pod, node_state

from topomend.cli.numa.drawing import draw, holdings, styled
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.nodes.node_state import ContainerAllocation, PodAllocation
from topomend.picture.holders import LETTERS


@pytest.mark.parametrize(
    ("name", "value"), [("prefer-most-allocated-numa-node", "true"), ("numa-allocation-strategy", "least-allocated")]
)
def test_an_option_that_no_released_kubelet_knows_is_said_with_the_node(name: str, value: str) -> None:
    proposed = node_state(options=f"{name}={value}", gates="TopologyManagerPolicyAlphaOptions")
    (remark,) = set(draw(proposed)) - set(draw(node_state()))
    assert remark == (
        f"not modelled by replay: released kubelets do not start with option {name}; replay follows its KEP"
    )


def claim(pod: str, *devices: str) -> ContainerClaim:
    return ContainerClaim("ns", pod, "c0", "gpus", "gpu.example.com", "node-1", devices)


PLACES = {"gpu-0": 0, "gpu-2": 1, "gpu-10": 1}


def numa_node_of(driver: str, pool: str, device: str) -> int | None:
    assert (driver, pool) == ("gpu.example.com", "node-1")
    return PLACES.get(device)


def test_devices_of_claims_are_drawn_on_their_numa_node_with_the_letters_of_those_who_have_them() -> None:
    state = node_state(TWO_NUMA_NODES, pods=[guaranteed_pod("train", 2)])
    claims = (claim("side", "gpu-2", "gpu-10", "gpu-x"), claim("train", "gpu-0", "gpu-2"))
    lines = list(draw(state, claims, numa_node_of))
    assert [line for line in lines[1:-3] if "  cores  " not in line] == [
        "NUMA 0  CPUs 0-3   1 of 4 free   memory 8Gi",
        "  claims   gpu.example.com: gpu-0 a",
        "NUMA 1  CPUs 4-7   4 of 4 free   memory 8Gi",
        "  claims   gpu.example.com: gpu-2 +  gpu-10 b   + shared by several   b ns/side c0",
        "NUMA node not known",
        "  claims   gpu.example.com: gpu-x b",
    ]
    assert list(holdings(state, claims)) == [
        "  a ns/train c0   CPUs 1-2   gpu.example.com gpu-0,gpu-2 by claim gpus",
        "  b ns/side c0   gpu.example.com gpu-2,gpu-10,gpu-x by claim gpus",
    ]


def test_a_row_of_cores_has_each_container_in_one_colour_with_its_letter() -> None:
    state = node_state(TWO_NUMA_NODES, pods=[guaranteed_pod("a", 1), guaranteed_pod("b", 1)])
    rows = [line for line in draw(state) if "  cores  " in line]
    for row in rows:
        parts = list(styled(row))
        assert "".join(text for text, _ in parts) == row
        styles: dict[str, object] = {}
        for text, style in parts:
            if len(set(text)) == 1 and text.strip():
                assert styles.setdefault(text[0], style) == style
        if row is rows[0]:
            assert styles["a"] != styles["b"] != {}
    assert not [part for line in draw(state) if line not in rows for part in styled(line)]


def test_what_a_pod_holds_as_a_whole_has_a_letter_too() -> None:
    whole = PodAllocation("ns", "p", containers=(ContainerAllocation("c0", cpus=0b10),), cpus=0b1110)
    lines = list(draw(replace(node_state(), pods=(whole,))))
    assert "NUMA 0  CPUs 0-3   0 of 4 free   memory 8Gi" in lines
    assert "  cores    Rabb   R reserved   a ns/p c0   b ns/p (whole pod)" in lines


def test_holders_beyond_the_letters_share_a_mark_in_the_drawing_alone() -> None:
    pods = tuple(PodAllocation("ns", f"p{number}", containers=(one_cpu(number),)) for number in range(53))
    state = replace(node_state("cores:64 memory:8Gi"), pods=pods)
    [row] = [line for line in draw(state) if line.startswith("  cores    ")]
    assert row.split()[1] == "R" + LETTERS + "##" + "." * 10
    assert "# allocated" in row


def one_cpu(number: int) -> ContainerAllocation:
    return ContainerAllocation("c0", cpus=1 << number + 1)
