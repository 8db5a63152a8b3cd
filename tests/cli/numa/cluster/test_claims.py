"""What ``explain`` says of the devices that a pod has by claims. Real claims: tests/controller/test_never_worse.py."""

import pytest
from tests.builders import TWO_NUMA_NODES, guaranteed_pod, node_state, snapshot_of

from topomend.cli.numa.cluster.claims import Claims, claim_lines, claim_records
from topomend.model.claimed_device import ClaimedDevice

POD = guaranteed_pod("train", 2)
ON_FIRST = snapshot_of(node_state(TWO_NUMA_NODES, name="a", pods=[POD]))
"""The pod has CPUs of NUMA node 0."""


def device(numa_node: int | None) -> ClaimedDevice:
    return ClaimedDevice("gpu", "request", "gpu.example.com", "pool", "gpu-1", numa_node)


def given(*devices: ClaimedDevice, container: str = "c0") -> Claims:
    return Claims(devices, {container: devices})


def lines(claims: Claims, node: str = "a") -> list[str]:
    return list(claim_lines(claims, ON_FIRST, node, POD))


@pytest.mark.parametrize(
    ("numa_node", "where", "judged"),
    [
        (1, " on NUMA 1", "these are apart"),
        (0, " on NUMA 0", "all on one NUMA node"),
        (None, "", "whether these are on one NUMA node is unknown"),
    ],
)
def test_where_a_container_s_device_and_its_cpus_are_is_said_and_whether_that_is_the_same(
    numa_node: int | None, where: str, judged: str
) -> None:
    assert lines(given(device(numa_node))) == [
        f"by claim: gpu-1 of gpu.example.com (claim gpu){where}",
        f"container c0: gpu-1 by claim{where}; by its kubelet cpu on NUMA 0: {judged}",
        "no kubelet aligns the devices of claims with CPUs, memory and the devices of plugins",
    ]


def test_of_several_devices_one_elsewhere_is_enough_to_be_apart_and_one_unknown_to_be_unknown() -> None:
    assert lines(given(device(0), device(None), device(1)))[1].endswith(": these are apart")
    assert lines(given(device(0), device(None)))[1].endswith(": whether these are on one NUMA node is unknown")


def test_a_container_without_exclusive_resources_is_not_judged() -> None:
    assert lines(given(device(1), container="side")) == ["by claim: gpu-1 of gpu.example.com (claim gpu) on NUMA 1"]


def test_of_a_node_without_an_agent_only_the_claim_is_known() -> None:
    assert lines(given(device(1)), "other") == ["by claim: gpu-1 of gpu.example.com (claim gpu) on NUMA 1"]


def test_why_claims_are_not_known_is_said() -> None:
    assert lines(Claims(problem="may not be read")) == ["may not be read"]
    assert lines(Claims()) == []


def test_programs_read_the_same() -> None:
    assert claim_records([device(1)]) == [
        {
            "claim": "gpu",
            "request": "request",
            "driver": "gpu.example.com",
            "pool": "pool",
            "device": "gpu-1",
            "numaNode": 1,
        }
    ]
