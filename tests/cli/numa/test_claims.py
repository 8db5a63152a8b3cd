"""What ``explain`` says of the devices that a pod has by claims. Real claims: tests/controller/test_never_worse.py."""

import pytest
from tests.builders import TWO_NUMA_NODES, guaranteed_pod, node_state, snapshot_of

from topomend.cli.numa.claims import Claims, claim_lines, claim_records
from topomend.model.claimed_device import ClaimedDevice

POD = guaranteed_pod("train", 2)
ON_FIRST = snapshot_of(node_state(TWO_NUMA_NODES, name="a", pods=[POD]))
"""The pod has CPUs of NUMA node 0."""


def device(numa_node: int | None) -> ClaimedDevice:
    return ClaimedDevice("gpu", "request", "gpu.example.com", "pool", "gpu-1", numa_node)


def lines(claims: Claims, node: str = "a") -> list[str]:
    return list(claim_lines(claims, ON_FIRST, node, POD))


def test_a_device_on_another_numa_node_than_the_cpus_is_said_to_be_apart() -> None:
    assert lines(Claims((device(1),))) == [
        "by claim: gpu-1 of gpu.example.com (claim gpu) on NUMA 1",
        "by its kubelet: container c0: cpu on NUMA 0",
        "these are apart: no kubelet aligns CPUs, memory and the devices of plugins with claims",
    ]


@pytest.mark.parametrize(("numa_node", "where"), [(0, " on NUMA 0"), (None, "")])
def test_a_device_beside_the_cpus_or_at_an_unknown_place_is_not(numa_node: int | None, where: str) -> None:
    assert lines(Claims((device(numa_node),))) == [
        f"by claim: gpu-1 of gpu.example.com (claim gpu){where}",
        "by its kubelet: container c0: cpu on NUMA 0",
    ]


def test_of_a_node_without_an_agent_only_the_claim_is_known() -> None:
    assert lines(Claims((device(1),)), "other") == ["by claim: gpu-1 of gpu.example.com (claim gpu) on NUMA 1"]


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
