"""Which devices containers get: beside their CPUs, again after a restart, and by their limits alone."""

from dataclasses import replace

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.verdicts import POLICIES, REFUSED, Case, admit_all, of, unexpected, verdict_line

from topomend.model.node_state import Device, NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.replay.admission import admit

GPU = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2,1=2"
GPU_ON_0 = f"{TWO_NUMA_NODES} device:v.com/gpu@0=2"

CASES = [
    Case(
        "CPUs and device meet on one NUMA node",
        node_state(GPU),
        [pod("p", of(3)), pod("q", of(2, rest="v.com/gpu=1"))],
        "[1] cpus 4-5 1 v.com/gpu on 1",
    ),
    Case(
        "a device without room beside it is refused",
        node_state(GPU_ON_0),
        [pod("p", of(3)), pod("q", of(2, rest="v.com/gpu=1"))],
        REFUSED,
    ),
    Case("a burstable pod is refused for its devices alone", node_state(GPU), [pod("p", "v.com/gpu=3")], REFUSED),
    Case(
        "devices from both NUMA nodes are preferred under restricted",
        node_state(GPU, "restricted"),
        [pod("p", "v.com/gpu=3")],
        "[0-1] 3 v.com/gpu on 0-1",
    ),
    Case(
        "a device on NUMA node 0 narrows six CPUs under best-effort (ran)",
        node_state(GPU_ON_0, "best-effort"),
        [pod("p", of(6, rest="v.com/gpu=1"))],
        "(0) cpus 1-6 1 v.com/gpu on 0",
    ),
    Case(
        "before 1.36 the device's masks were wider",
        node_state(GPU_ON_0, "best-effort", version="v1.35.0"),
        [pod("p", of(6, rest="v.com/gpu=1"))],
        "(0-1) cpus 1-2,4-7 1 v.com/gpu on 0",
    ),
    Case(
        "a limit of no device steers the container (ran)",
        node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@1=1"),
        [pod("p", of(2, rest="v.com/gpu=0"))],
        "[1] cpus 4-5",
    ),
    Case(
        "more devices than there are, under best-effort",
        node_state(GPU, "best-effort"),
        [pod("p", "v.com/gpu=5")],
        unexpected("requested number of devices unavailable for v.com/gpu. Requested: 5, Available: 4"),
    ),
    Case("a resource that no plugin offers is nobody's business", node_state(), [pod("p", "x.com/y=1")], "[any]"),
    Case(
        "an app container reuses the init container's device",
        node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@1=1"),
        [pod("p", "init v.com/gpu=1", "v.com/gpu=1")],
        "[1] 1 v.com/gpu on 1; [1] 1 v.com/gpu on 1",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_kubelet_answers(case: Case) -> None:
    assert case.answer() == case.expected


# A pod that is admitted again


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_devices_after_a_restart_is_impossible(count: int) -> None:
    state = node_state(GPU, "restricted", pods=[pod("p", "v.com/gpu=2")])
    assert verdict_line(admit(state, pod("p", f"v.com/gpu={count}"))[0]) == REFUSED


@pytest.mark.parametrize("policy", ["none", "best-effort"])
@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_devices_after_a_restart_is_not_given(policy: str, count: int) -> None:
    state = node_state(GPU, policy, pods=[pod("p", "v.com/gpu=2")])
    assert verdict_line(admit(state, pod("p", f"v.com/gpu={count}"))[0]) == unexpected(
        f'pod "p" container "c0" changed request for resource "v.com/gpu" from 2 to {count}'
    )


def test_a_device_in_use_that_became_unhealthy_fails_the_pod_after_a_restart() -> None:
    state = node_state(GPU, "none", pods=[pod("p", "v.com/gpu=1")])
    ill = tuple(replace(device, healthy=device.numa_nodes != (0,)) for device in state.devices)
    assert verdict_line(admit(replace(state, devices=ill), pod("p", "v.com/gpu=1"))[0]) == unexpected(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices v.com/gpu"
    )


def test_devices_in_use_whose_plugin_has_gone_fail_the_pod_after_a_restart() -> None:
    state = node_state(GPU, "none", pods=[pod("p", "v.com/gpu=1")])
    assert verdict_line(admit(replace(state, devices=()), pod("p", "v.com/gpu=1"))[0]) == unexpected(
        "cannot allocate unregistered device v.com/gpu"
    )


def test_limits_alone_ask_for_devices() -> None:
    state = replace(node_state(policy="single-numa-node"), devices=(Device("v.com/gpu", "a", (1,)),))
    limited = Container("c", ContainerKind.APP, Resources({}, {"v.com/gpu": 1000}))
    verdict, _ = admit(state, Pod("ns", "p", "p", (limited,)))
    assert verdict_line(verdict) == "[1] 1 v.com/gpu on 1"


# Devices in odd places


def odd_devices(policy: str, *devices: Device) -> NodeState:
    return replace(node_state(policy=policy), devices=devices)


def test_a_device_on_a_numa_node_that_does_not_exist_is_impossible() -> None:
    device = Device("v.com/gpu", "a", (-1,))
    assert verdict_line(admit(odd_devices("restricted", device), pod("p", "v.com/gpu=1"))[0]) == REFUSED
    verdict, _ = admit(odd_devices("best-effort", device), pod("p", of(2, rest="v.com/gpu=1")))
    assert verdict_line(verdict) == "(0) cpus 1-2 1 v.com/gpu on "


def test_a_device_on_an_unknown_numa_node_fits_nowhere() -> None:
    for numa_nodes in ((7,), (-1,), (64,), (7, -1)):
        for policy in POLICIES:
            state = replace(node_state(policy=policy), devices=(Device("v.com/gpu", "g", numa_nodes),))
            verdict, _ = admit(state, pod("p", "cpu=1 memory=1Gi v.com/gpu=1"))
            aligned = policy in ("restricted", "single-numa-node")
            assert verdict.reason == ("TopologyAffinityError" if aligned else ""), (numa_nodes, policy)


def test_a_device_without_numa_node_has_no_preference() -> None:
    verdict, _ = admit(odd_devices("single-numa-node", Device("v.com/gpu", "a")), pod("p", "v.com/gpu=1"))
    assert verdict_line(verdict) == "[any] 1 v.com/gpu on "


def test_a_device_on_two_numa_nodes_serves_either() -> None:
    state = odd_devices("single-numa-node", Device("v.com/gpu", "a", (0, 1)))
    verdicts, _ = admit_all(state, [pod("p", of(3)), pod("q", of(3, rest="v.com/gpu=1"))])
    assert verdict_line(verdicts[1]) == "[1] cpus 4-6 1 v.com/gpu on 0-1"


def test_unhealthy_devices_count_for_the_preferred_width_only() -> None:
    devices = [
        Device("v.com/gpu", "a", (0,), healthy=False),
        Device("v.com/gpu", "b", (0,)),
        Device("v.com/gpu", "c", (1,)),
    ]
    state = odd_devices("restricted", *devices)
    assert verdict_line(admit(state, pod("p", "v.com/gpu=2"))[0]) == REFUSED
    sick = odd_devices("best-effort", Device("v.com/gpu", "a", (0,), healthy=False))
    assert verdict_line(admit(sick, pod("p", "v.com/gpu=0"))[0]) == unexpected(
        "no healthy devices present; cannot allocate unhealthy devices v.com/gpu"
    )


def test_devices_are_taken_in_natural_order() -> None:
    state = odd_devices("none", *(Device("v.com/gpu", f"gpu-0-{index}", (0,)) for index in (10, 9, 2)))
    _, taken = admit(state, pod("p", "v.com/gpu=2"))
    assert taken.pods[0].containers[0].devices[0].ids == ("gpu-0-2", "gpu-0-9")
