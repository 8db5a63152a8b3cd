"""Which devices containers get: beside their CPUs, again after a restart, and by their limits alone."""

from dataclasses import replace

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod
from tests.replay.verdicts import POLICIES, REFUSED, Case, admit_all, of, unexpected, verdict_line

from topomend.model.nodes.node_state import Device, InitialContainer, NodeState, restarted
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources
from topomend.replay.admission import admit
from topomend.replay.fast_path.admission import FastAdmission

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


# A kubelet that has restarted before its plugins are back

NOT_BACK = unexpected("no healthy devices present; cannot allocate unhealthy devices v.com/gpu")


def found(**running: bool) -> tuple[InitialContainer, ...]:
    """The containers of pod p, each with whether it runs."""
    return tuple(InitialContainer("p", name, runs) for name, runs in running.items())


def after_restart(state: NodeState, *containers: InitialContainer) -> NodeState:
    return restarted(state, containers, ["v.com/gpu"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_container_that_runs_keeps_its_device_though_the_plugin_is_not_back(policy: str, scope: str) -> None:
    runs = pod("p", of(2, rest="v.com/gpu=1"))
    before = node_state(GPU, policy, scope=scope, pods=[runs])
    verdict, after = admit(after_restart(before, *found(c0=True)), runs)
    assert verdict.admitted
    assert after.pods == before.pods


@pytest.mark.parametrize("containers", [found(c0=False), ()], ids=["ended", "gone"])
def test_after_a_reboot_a_pod_is_refused_until_the_plugin_is_back(containers: tuple[InitialContainer, ...]) -> None:
    ran = pod("p", of(2, rest="v.com/gpu=1"))
    before = node_state(GPU, pods=[ran])
    assert verdict_line(admit(after_restart(before, *containers), ran)[0]) == NOT_BACK
    assert admit(restarted(before, containers), ran)[0].admitted


def test_an_init_container_that_has_ended_fails_its_running_pod_until_the_plugin_is_back() -> None:
    runs = pod("p", "init v.com/gpu=1", "v.com/gpu=1")
    before = node_state(GPU, pods=[runs])
    containers = found(c0=False, c1=True)
    assert verdict_line(admit(after_restart(before, *containers), runs)[0]) == NOT_BACK
    assert admit(restarted(before, containers), runs)[0].admitted


def test_a_container_that_restarted_runs_if_any_instance_of_it_does() -> None:
    runs = pod("p", "v.com/gpu=1")
    restarted_before = found(c0=False) + found(c0=True)
    verdict, _ = admit(after_restart(node_state(GPU, pods=[runs]), *restarted_before), runs)
    assert verdict.admitted
    assert not verdict.unmodelled


def test_before_1_36_it_is_chance_which_instance_of_a_container_counts() -> None:
    runs = pod("p", "v.com/gpu=1")
    state = node_state(GPU, version="v1.35.0", pods=[runs])
    verdict, _ = admit(after_restart(state, *found(c0=False), *found(c0=True)), runs)
    assert verdict.unmodelled == (
        "whether a kubelet before 1.36 that has restarted finds c0 running, which has restarted too, is chance",
    )
    assert not admit(after_restart(state, *found(c0=True)), runs)[0].unmodelled
    assert not admit(after_restart(node_state(GPU, version="v1.35.0"), *found(c0=True), *found(c0=False)), pod("p"))[
        0
    ].unmodelled


def test_what_runs_of_one_pod_says_nothing_of_another() -> None:
    runs, other = pod("p", "v.com/gpu=1"), pod("q", "v.com/gpu=1")
    state = after_restart(node_state(GPU, pods=[runs, other]), *found(c0=True))
    assert verdict_line(admit(state, other)[0]) == NOT_BACK


def test_a_kubelet_that_is_ready_asks_for_the_devices_of_containers_that_run_too() -> None:
    runs = pod("p", "v.com/gpu=1")
    unready = after_restart(node_state(GPU, pods=[runs]), *found(c0=True))
    assert verdict_line(admit(replace(unready, initial_containers=None), runs)[0]) == NOT_BACK


def test_a_changed_request_fails_a_container_that_runs() -> None:
    state = after_restart(node_state(GPU, pods=[pod("p", "v.com/gpu=2")]), *found(c0=True))
    assert verdict_line(admit(state, pod("p", "v.com/gpu=1"))[0]) == unexpected(
        'pod "p" container "c0" changed request for resource "v.com/gpu" from 2 to 1'
    )


def test_a_new_pod_is_refused_for_devices_that_a_plugin_offered_before_the_restart() -> None:
    state = replace(after_restart(node_state(GPU)), initial_containers=None)
    assert verdict_line(admit(state, pod("q", "v.com/gpu=1"))[0]) == NOT_BACK
    assert not FastAdmission(pod("q", "v.com/gpu=1")).admits(state)


def test_a_resource_is_known_of_which_no_device_was_in_use_before_the_restart() -> None:
    state = replace(node_state(), stopped_resources=frozenset({"v.com/gpu"}))
    assert verdict_line(admit(state, pod("q", "v.com/gpu=1"))[0]) == NOT_BACK
    assert not FastAdmission(pod("q", "v.com/gpu=1")).admits(state)


def test_a_pod_that_is_refused_keeps_what_it_has_until_the_kubelet_is_ready() -> None:
    ran = pod("p", of(3, rest="v.com/gpu=1"))
    before = node_state(GPU, "restricted", pods=[ran])
    verdict, after = admit(after_restart(before), ran)
    assert not verdict.admitted
    assert after.pods == before.pods
    ready = replace(after_restart(before), initial_containers=None)
    assert not admit(ready, ran)[1].pods


def test_pods_of_one_shape_get_answers_of_their_own_from_a_kubelet_that_is_not_ready() -> None:
    state = restarted(node_state(GPU), found(c0=True), ["v.com/gpu"])
    assert FastAdmission(pod("p", "v.com/gpu=1")).admits(state)
    assert not FastAdmission(pod("q", "v.com/gpu=1")).admits(state)
