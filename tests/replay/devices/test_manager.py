"""Devices of a pod that is admitted again, and limits as the only thing that counts."""

from dataclasses import replace

import pytest
from tests.replay.nodes import TWO, node, pod, told

from topomend.model.node_state import Device, NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.replay.admission import admit

GPUS = f"{TWO} device:v.com/gpu@0=2,1=2"


def unexpected(error: str) -> str:
    return f"UnexpectedAdmissionError: Allocate failed due to {error}, which is unexpected"


def running(policy: str, asked: Pod) -> NodeState:
    verdict, state = admit(node(GPUS, policy), asked)
    assert verdict.admitted
    return state


@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_devices_after_a_restart_is_impossible(count: int) -> None:
    state = running("restricted", pod("p", "v.com/gpu=2"))
    assert told(admit(state, pod("p", f"v.com/gpu={count}"))[0]) == (
        "TopologyAffinityError: Resources cannot be allocated with Topology locality"
    )


@pytest.mark.parametrize("policy", ["none", "best-effort"])
@pytest.mark.parametrize("count", [1, 3])
def test_another_number_of_devices_after_a_restart_is_not_given(policy: str, count: int) -> None:
    state = running(policy, pod("p", "v.com/gpu=2"))
    assert told(admit(state, pod("p", f"v.com/gpu={count}"))[0]) == unexpected(
        f'pod "p" container "c0" changed request for resource "v.com/gpu" from 2 to {count}'
    )


def test_a_held_device_that_fell_ill_fails_the_pod_after_a_restart() -> None:
    state = running("none", pod("p", "v.com/gpu=1"))
    ill = tuple(replace(each, healthy=each.numa_nodes != (0,)) for each in state.devices)
    assert told(admit(replace(state, devices=ill), pod("p", "v.com/gpu=1"))[0]) == unexpected(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices v.com/gpu"
    )


def test_held_devices_whose_plugin_has_gone_fail_the_pod_after_a_restart() -> None:
    state = running("none", pod("p", "v.com/gpu=1"))
    assert told(admit(replace(state, devices=()), pod("p", "v.com/gpu=1"))[0]) == unexpected(
        "cannot allocate unregistered device v.com/gpu"
    )


def test_limits_alone_ask_for_devices() -> None:
    state = replace(node(TWO, "single-numa-node"), devices=(Device("v.com/gpu", "a", (1,)),))
    limited = Container("c", ContainerKind.APP, Resources({}, {"v.com/gpu": 1000}))
    verdict, _ = admit(state, Pod("d", "p", "p", (limited,)))
    assert told(verdict) == "[1] 1 v.com/gpu on 1"
