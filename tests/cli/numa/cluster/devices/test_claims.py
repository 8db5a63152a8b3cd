"""What ``explain`` says of the devices that a pod has by claims. Real claims: tests/controller/test_never_worse.py."""

import pytest
from tests.builders import TWO_NUMA_NODES, guaranteed_pod, node_state, snapshot_of

from topomend.cli.numa.cluster.devices.claims import Claims, _given, _of_container, claim_lines, claim_records
from topomend.cli.numa.cluster.devices.device_places import DevicePlaces
from topomend.model.devices.claimed_device import ClaimedDevice
from topomend.wire.devices.resource_claim import Unhealthy

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


def test_a_device_that_its_driver_calls_unhealthy_is_told_in_a_line_that_is_safe_to_show() -> None:
    unhealthy = Unhealthy("main", "gpu", "gpu.example.com/device=gpu-1", "too\nhot\x1b[1m")
    assert lines(Claims(unhealthy=(unhealthy,))) == [
        "container main: gpu.example.com/device=gpu-1 (claim gpu) is unhealthy: too hot\\x1b[1m"
    ]


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


def test_a_claim_that_cannot_be_read_is_a_problem_of_those_alone_that_have_it() -> None:
    result = {"request": "r", "driver": "vendor.com", "pool": "a", "device": "gpu-0"}
    allocations = {"good": {"devices": {"results": [result]}}, "broken": {"devices": {"results": "none"}}}
    claims = [
        {"metadata": {"namespace": "default", "name": name}, "status": {"allocation": allocation}}
        for name, allocation in allocations.items()
    ]
    given = {key: claimed for claim in claims for key, claimed in _given(claim)}
    places = DevicePlaces({("vendor.com", "a", "gpu-0"): 1})
    (device,) = _of_container("default", [("good", "")], given, places, "").devices
    assert (device.device, device.numa_node) == ("gpu-0", 1)
    assert (
        "claim broken cannot be read"
        in _of_container("default", [("good", ""), ("broken", "")], given, places, "").problem
    )
