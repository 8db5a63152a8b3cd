"""In-place resize: what each version of the kubelet answers, branch by branch of its source."""

from dataclasses import replace

import pytest
from tests.builders import TWO_NUMA_NODES, node_state, pod, running

from topomend.model.nodes.node_state import NodeState, allocations, emptied
from topomend.model.pods.pod import Pod, Resources
from topomend.model.quantity import parse_quantity
from topomend.replay.admission import admit
from topomend.replay.gates import NEXT
from topomend.replay.resize import (
    DEFERRED,
    INFEASIBLE,
    KUBELET_DOES_NOT_RESIZE,
    Resized,
    Totals,
    is_shown,
    resize,
)

CPUS = "InPlacePodVerticalScalingExclusiveCPUs"
MEMORY = "InPlacePodVerticalScalingExclusiveMemory"

CPU_STATIC = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
MEMORY_STATIC = 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"'


def running_pod(state: NodeState, *containers: str) -> tuple[NodeState, Pod]:
    """The node once a pod of these containers runs there, and the pod."""
    allocated = pod("p", *containers)
    return running(state, allocated), allocated


def answer(
    state: NodeState, before: str | tuple[str, ...], now: str | tuple[str, ...], totals: Totals | None = None
) -> Resized:
    """What the kubelet answers to a pod that ran with containers ``before`` and asks for those of ``now``."""
    state, allocated = running_pod(state, *([before] if isinstance(before, str) else before))
    desired = pod("p", *([now] if isinstance(now, str) else now))
    return resize(state, allocated, desired, totals)[0]


def answered_with(answered: Resized) -> tuple[str, str]:
    return answered.reason, answered.message


def totals(allocatable: str, used: str = "", unreserved: str = "") -> Totals:
    """Texts such as ``cpu=8 memory=8Gi``."""
    allocatable_, used_, unreserved_ = (
        {word.split("=")[0]: parse_quantity(word.split("=")[1]) for word in text.split()}
        for text in (allocatable, used, unreserved)
    )
    return Totals(allocatable_, used_, unreserved_)


# Guaranteed pods under static policies


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("cpu=2 memory=1Gi", "cpu=3 memory=1Gi"),
        ("cpu=2 memory=1Gi", "cpu=1 memory=1Gi"),
        ("cpu=1500m memory=1Gi", "cpu=1200m memory=1Gi"),
        ("sidecar cpu=1 memory=1Gi", "sidecar cpu=2 memory=1Gi"),
    ],
    ids=["more exclusive cpus", "fewer exclusive cpus", "no whole cpus", "a sidecar"],
)
def test_a_guaranteed_pod_gets_no_other_cpus_under_the_static_policy(before: str, now: str) -> None:
    app = "cpu=1 memory=1Gi"
    assert answered_with(answer(node_state(), (before, app), (now, app))) == (INFEASIBLE, CPU_STATIC)


def test_a_guaranteed_pod_gets_other_memory_where_only_cpus_are_static() -> None:
    answered = answer(node_state(), "cpu=2 memory=1Gi", "cpu=2 memory=2Gi")
    assert answered_with(answered) == ("", "")
    assert answered.verdict is not None
    assert answered.verdict.admitted


def test_a_guaranteed_pod_gets_no_other_memory_under_the_static_policy() -> None:
    state = node_state(memory_manager="Static", cpu_manager="none")
    assert answered_with(answer(state, "cpu=2 memory=1Gi", "cpu=2 memory=2Gi")) == (INFEASIBLE, MEMORY_STATIC)
    assert answered_with(answer(state, "cpu=2 memory=1Gi", "cpu=3 memory=1Gi")) == ("", "")


def test_cpus_are_judged_before_memory() -> None:
    state = node_state(memory_manager="Static")
    assert answer(state, "cpu=2 memory=1Gi", "cpu=3 memory=2Gi").message == CPU_STATIC


def test_the_pod_keeps_what_it_has_while_its_resize_is_infeasible() -> None:
    state, allocated = running_pod(node_state(), "cpu=2 memory=1Gi")
    answered, after = resize(state, allocated, pod("p", "cpu=3 memory=1Gi"))
    assert (answered.verdict, after) == (None, state)


def test_the_class_that_the_pods_status_says_decides() -> None:
    state, allocated = running_pod(node_state(), "request:cpu=1 memory=1Gi")
    assert answered_with(resize(state, allocated, pod("p", "request:cpu=2 memory=1Gi"))[0]) == ("", "")
    desired = pod("p", "request:cpu=2 memory=1Gi", qos_class="Guaranteed")
    assert answered_with(resize(state, allocated, desired)[0]) == (INFEASIBLE, CPU_STATIC)


def test_policies_that_pin_nothing_let_guaranteed_pods_be_resized() -> None:
    assert answered_with(answer(node_state(cpu_manager="none"), "cpu=2 memory=1Gi", "cpu=3 memory=2Gi")) == (
        "",
        "",
    )


def test_burstable_pods_are_resized_under_static_policies() -> None:
    state = node_state(memory_manager="Static")
    assert answered_with(answer(state, "request:cpu=1 memory=1Gi", "request:cpu=3 memory=2Gi")) == ("", "")


# States older than the pod


@pytest.mark.parametrize(
    "container",
    ["cpu=2 memory=1Gi", "sidecar cpu=2 memory=1Gi", "cpu=1500m memory=1Gi", "request:cpu=1 vendor.com/x=1"],
)
def test_a_state_that_lacks_what_a_running_pod_holds_does_not_show_it(container: str) -> None:
    before = node_state(f"{TWO_NUMA_NODES} device:vendor.com/x@0=1", memory_manager="Static")
    after, allocated = running_pod(before, container, "cpu=1 memory=1Gi")
    assert is_shown(after, allocated)
    assert not is_shown(before, allocated)
    for part in ("cpus", "memory", "devices"):
        [allocation] = after.pods
        first, *others = allocation.containers
        if getattr(first, part):
            lacking = replace(allocation, containers=(replace(first, **{part: type(getattr(first, part))()}), *others))
            assert not is_shown(replace(after, pods=(lacking,)), allocated), part
    assert not is_shown(replace(after, pods=(replace(after.pods[0], uid="another"),)), allocated)


def test_a_pod_that_holds_nothing_is_shown_by_every_state() -> None:
    state = node_state(memory_manager="Static")
    assert is_shown(state, pod("p", "request:cpu=1 memory=1Gi"))
    assert is_shown(node_state(cpu_manager="none"), pod("p", "cpu=2 memory=1Gi"))


def test_what_init_containers_held_need_not_be_shown() -> None:
    after, allocated = running_pod(node_state(), "init cpu=2 memory=1Gi", "cpu=1500m memory=1Gi")
    assert is_shown(emptied(after), allocated)


def test_a_pod_that_even_the_empty_node_refuses_is_taken_to_be_shown() -> None:
    assert is_shown(node_state(), pod("p", "cpu=5 memory=1Gi"))


# What counts as a resize


def test_what_asks_for_nothing_new_is_no_resize() -> None:
    answered = answer(node_state(), "cpu=2 memory=1Gi", "cpu=2 memory=1Gi", totals("cpu=1"))
    assert answered == Resized()


def test_limits_alone_are_a_resize() -> None:
    answered = answer(node_state(), "request:cpu=1", "request:cpu=1 memory=1Gi request:memory=0")
    assert answered.verdict is not None


@pytest.mark.parametrize(
    ("version", "gates", "resized"),
    [("v1.35.4", "", False), ("v1.36.3", "", True), ("v1.37.1", "", True)],
)
def test_init_containers_are_resized_since_1_36(version: str, gates: str, resized: bool) -> None:
    app = "cpu=1 memory=1Gi"
    state = node_state(version=version, gates=gates)
    answered = answer(state, ("init cpu=1 memory=1Gi", app), ("init cpu=2 memory=1Gi", app))
    assert answered_with(answered) == ((INFEASIBLE, CPU_STATIC) if resized else ("", ""))
    assert answered.verdict is None


@pytest.mark.parametrize("version", ["v1.33.13", "v1.35.4", "v1.36.3"])
def test_sidecars_are_resized_in_every_version(version: str) -> None:
    app = "cpu=1 memory=1Gi"
    answered = answer(node_state(version=version), ("sidecar cpu=1 memory=1Gi", app), ("sidecar cpu=2 memory=1Gi", app))
    assert answered.reason == INFEASIBLE


def test_init_containers_are_resized_unless_their_gate_is_off() -> None:
    state = node_state()
    off = {"InPlacePodVerticalScalingInitContainers": False}
    app = "cpu=1 memory=1Gi"
    for version, resized in (("v1.36.3", False), ("v1.37.1", True)):
        settings = replace(state.kubelet, feature_gates=off, version=version)
        answered = answer(replace(state, kubelet=settings), ("init cpu=1", app), ("init cpu=2", app))
        assert (answered.verdict is not None) == resized


@pytest.mark.parametrize(
    ("version", "gates", "resized"),
    [
        ("v1.34.4", "", False),
        ("v1.35.4", "", False),
        ("v1.35.4", "InPlacePodLevelResourcesVerticalScaling", True),
        ("v1.36.3", "", True),
    ],
)
def test_pod_level_resources_are_resized_since_1_36_or_with_their_gate(version: str, gates: str, resized: bool) -> None:
    """Their containers ask for the same, so that no static policy minds it."""
    state = node_state(version=version, gates=gates)
    allocated = pod("p", "cpu=1 memory=1Gi", resources="cpu=2 memory=2Gi")
    _, state = admit(state, allocated)
    desired = pod("p", "cpu=1 memory=1Gi", resources="cpu=3 memory=2Gi")
    answered, _ = resize(state, allocated, desired)
    assert answered_with(answered) == ("", "")
    assert (answered.verdict is not None) == resized


def test_pod_level_resources_are_not_resized_where_their_gate_is_off() -> None:
    state = node_state()
    off = {"InPlacePodLevelResourcesVerticalScaling": False}
    state = replace(state, kubelet=replace(state.kubelet, feature_gates=off))
    allocated = pod("p", "cpu=1 memory=1Gi", resources="cpu=2 memory=2Gi")
    desired = replace(allocated, resources=Resources({"cpu": 3000}, {"cpu": 3000}))
    assert resize(state, allocated, desired)[0] == Resized()


# The Topology Manager is asked again


def test_a_pod_is_aligned_again_and_put_off_where_it_no_longer_is() -> None:
    """Both devices stand on NUMA nodes of their own: more than one is not what restricted prefers for the one asked."""
    state = node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@0=1,1=1", "restricted")
    (gpu_on_0, gpu_on_1) = state.devices
    assert (gpu_on_0.numa_nodes, gpu_on_1.numa_nodes) == ((0,), (1,))
    state, allocated = running_pod(state, "request:cpu=1 v.com/gpu=2")
    narrower = replace(state, devices=(*state.devices, replace(gpu_on_0, id="new")))
    answered, after = resize(narrower, allocated, pod("p", "request:cpu=2 v.com/gpu=2"))
    assert answered_with(answered) == (DEFERRED, "Resources cannot be allocated with Topology locality")
    assert answered.verdict is not None
    assert answered.verdict.reason == "TopologyAffinityError"
    assert after == narrower


def test_a_pod_whose_resize_is_allocated_keeps_its_resources() -> None:
    state, allocated = running_pod(node_state(), "cpu=2 memory=1Gi")
    _, after = resize(state, allocated, pod("p", "cpu=2 memory=2Gi"))
    assert after == state


def test_whole_cores_are_checked_again_before_1_37() -> None:
    """All but one core are held, by the pod itself too."""
    smt = "sockets:1 cores:4 threads:2 memory:8Gi"
    for version, put_off in (("v1.36.3", True), ("v1.37.1", False)):
        state = node_state(smt, cpu_options="full-pcpus-only=true", version=version, reserved_cpus="0,4")
        state, allocated = running_pod(state, "cpu=4 memory=1Gi")
        answered, _ = resize(state, allocated, pod("p", "cpu=4 memory=2Gi"))
        assert (answered.reason == DEFERRED) == put_off, version
        assert answered.message.startswith("SMT Alignment Error: not enough free physical CPUs") == put_off


def test_a_kubelet_that_would_not_start_answers_nothing() -> None:
    state = node_state(reserved_cpus="")
    answered, after = resize(state, pod("p", "request:cpu=1"), pod("p", "request:cpu=2"))
    assert answered.reason == "KubeletWouldNotStart"
    assert after == state


# The node's totals


def test_what_the_node_lacks_puts_a_resize_off() -> None:
    room = totals("cpu=8 memory=8Gi", "cpu=5 memory=1Gi")
    state = node_state()
    assert answered_with(answer(state, "request:cpu=1", "request:cpu=3500m", room)) == (
        DEFERRED,
        "Node didn't have enough resource: cpu, requested: 3500, used: 5000, capacity: 8000",
    )
    assert answered_with(answer(state, "request:cpu=1", "request:cpu=3", room)) == ("", "")
    assert answered_with(answer(state, "request:memory=1Gi", "request:memory=8Gi", room)) == (
        DEFERRED,
        f"Node didn't have enough resource: memory, requested: {8 << 30}, used: {1 << 30}, capacity: {8 << 30}",
    )


def test_cpus_that_the_node_lacks_are_reported_before_memory() -> None:
    room = totals("cpu=4 memory=1Gi")
    assert " cpu," in answer(node_state(), "request:cpu=1", "request:cpu=5 request:memory=2Gi", room).message


def test_a_pod_that_asks_for_none_of_a_resource_needs_none_of_it() -> None:
    """The node is overcommitted: the other pods use more than it has."""
    room = totals("cpu=1 memory=8Gi", "cpu=2")
    assert answered_with(answer(node_state(), "request:memory=1Gi", "request:memory=2Gi", room)) == ("", "")


def test_totals_that_nobody_tells_are_not_checked() -> None:
    assert answered_with(answer(node_state(), "request:cpu=1", "request:cpu=500")) == ("", "")
    assert answered_with(answer(node_state(), "request:cpu=1", "request:cpu=500", totals("memory=1Gi"))) == (
        "",
        "",
    )


def test_topology_is_asked_before_totals() -> None:
    state = node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@0=1,1=1", "restricted")
    state, allocated = running_pod(state, "request:cpu=1 v.com/gpu=2")
    narrower = replace(state, devices=(*state.devices, replace(state.devices[0], id="new")))
    answered, _ = resize(narrower, allocated, pod("p", "request:cpu=9 v.com/gpu=2"), totals("cpu=8"))
    assert answered.message == "Resources cannot be allocated with Topology locality"


@pytest.mark.parametrize("version", ["v1.33.13", "v1.34.4", "v1.35.4"])
def test_what_not_even_the_empty_node_holds_is_infeasible_before_1_36(version: str) -> None:
    room = totals("cpu=8 memory=8Gi", "cpu=5")
    state = node_state(version=version)
    assert answered_with(answer(state, "request:cpu=1", "request:cpu=9", room)) == (
        INFEASIBLE,
        "Node didn't have enough capacity: cpu, requested: 9000, capacity: 8000",
    )
    assert answered_with(answer(state, "request:cpu=1", "request:cpu=9 request:memory=9Gi", room)) == (
        INFEASIBLE,
        f"Node didn't have enough capacity: memory, requested: {9 << 30}, capacity: {8 << 30}",
    )
    assert answer(state, "request:cpu=1", "request:cpu=8", room).reason == DEFERRED


def test_what_only_the_thresholds_of_evictions_take_is_put_off() -> None:
    room = totals("cpu=8 memory=7Gi", unreserved="memory=8Gi")
    state = node_state(version="v1.35.4")
    assert answer(state, "request:memory=1Gi", "request:memory=7500Mi", room).reason == DEFERRED
    assert answer(state, "request:memory=1Gi", "request:memory=8193Mi", room).reason == INFEASIBLE


def test_what_not_even_the_empty_node_holds_is_put_off_since_1_36() -> None:
    room = totals("cpu=8 memory=8Gi")
    assert answered_with(answer(node_state(), "request:cpu=1", "request:cpu=9", room)) == (
        DEFERRED,
        "Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 8000",
    )


def test_a_static_policy_refuses_before_totals_do() -> None:
    state = node_state(version="v1.35.4")
    assert answer(state, "cpu=1 memory=1Gi", "cpu=9 memory=1Gi", totals("cpu=8")).message == CPU_STATIC


# Versions and gates


def test_1_33_refuses_guaranteed_pods_any_resize_under_a_static_policy() -> None:
    cpu = (INFEASIBLE, "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy")
    memory = (INFEASIBLE, "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy")
    state = node_state(version="v1.33.13")
    assert answered_with(answer(state, "cpu=2 memory=1Gi", "cpu=2 memory=2Gi")) == cpu
    state = node_state(version="v1.33.13", memory_manager="Static", cpu_manager="none")
    assert answered_with(answer(state, "cpu=2 memory=1Gi", "cpu=3 memory=1Gi")) == memory


def test_the_next_release_names_the_mode_of_a_resource() -> None:
    """allocation/handlers.go:Admit and cm/types.go:ResourceAllocationMode of v1.38.0-beta.0."""
    state = node_state(version=NEXT, memory_manager="Static")
    cpu = (INFEASIBLE, "Resize is infeasible for Guaranteed Pods when CPU allocation mode is exclusive")
    memory = (INFEASIBLE, "Resize is infeasible for Guaranteed Pods when memory allocation mode is exclusive")
    assert answered_with(answer(state, "cpu=2 memory=1Gi", "cpu=3 memory=1Gi")) == cpu
    assert answered_with(answer(state, "cpu=2 memory=1Gi", "cpu=2 memory=2Gi")) == memory


def test_in_1_33_one_gate_stands_for_both_managers() -> None:
    for version, answered in (("v1.33.13", ""), ("v1.34.4", INFEASIBLE)):
        state = node_state(version=version, memory_manager="Static", cpu_manager="none", gates=CPUS)
        assert answer(state, "cpu=2 memory=1Gi", "cpu=3 memory=2Gi").reason == answered


def test_before_1_37_a_pod_of_other_size_no_longer_fits_its_cpus() -> None:
    """The alpha gate lets the resize come to the Topology Manager, which finds other CPUs held than are asked for."""
    state = node_state(gates=CPUS, version="v1.36.3")
    answered = answer(state, "cpu=2 memory=1Gi", "cpu=3 memory=1Gi")
    assert answered_with(answered) == (DEFERRED, "Resources cannot be allocated with Topology locality")
    assert answered.unmodelled == (
        "a resize that is deferred may leave some containers what they were given before the refusal",
    )


def test_with_its_gate_best_effort_leaves_a_pod_its_old_cpus() -> None:
    state, allocated = running_pod(node_state(policy="best-effort", gates=CPUS), "cpu=2 memory=1Gi")
    answered, after = resize(state, allocated, pod("p", "cpu=3 memory=1Gi"))
    assert (answered_with(answered), after) == (("", ""), state)


def test_before_1_37_cpus_that_become_whole_are_given() -> None:
    state, allocated = running_pod(node_state(gates=CPUS, version="v1.36.3"), "cpu=1500m memory=1Gi")
    answered, after = resize(state, allocated, pod("p", "cpu=2 memory=1Gi"))
    assert answered_with(answered) == ("", "")
    assert [container.cpus for container in allocations(after.pods)] == [0b110]


def test_before_1_37_cpus_stay_given_though_the_totals_lack_them() -> None:
    state, allocated = running_pod(node_state(gates=CPUS, version="v1.36.3"), "cpu=1500m memory=1Gi")
    answered, after = resize(state, allocated, pod("p", "cpu=2 memory=1Gi"), totals("cpu=8", "cpu=7"))
    assert answered.reason == DEFERRED
    assert [container.cpus for container in allocations(after.pods)] == [0b110]


@pytest.mark.parametrize(("before", "now"), [("2", "3"), ("3", "2"), ("1500m", "2"), ("2", "1500m")])
def test_since_1_37_no_manager_looks_at_a_resize_that_its_gate_allows(before: str, now: str) -> None:
    state, allocated = running_pod(node_state(gates=CPUS, version="v1.37.2"), f"cpu={before} memory=1Gi")
    answered, after = resize(state, allocated, pod("p", f"cpu={now} memory=1Gi"))
    assert (answered_with(answered), answered.unmodelled, after) == (("", ""), (), state)


def test_each_gate_is_its_own_managers() -> None:
    for gate, message in ((CPUS, MEMORY_STATIC), (MEMORY, CPU_STATIC)):
        state = node_state(memory_manager="Static", gates=gate)
        assert answer(state, "cpu=2 memory=1Gi", "cpu=3 memory=2Gi").message == message


@pytest.mark.parametrize("version", ["v1.30.14", "v1.32.13"])
def test_no_pod_is_resized_before_1_33(version: str) -> None:
    state = node_state(version=version)
    answered, after = resize(state, pod("p", "request:cpu=1"), pod("p", "request:cpu=2"))
    assert after == state
    assert answered_with(answered) == (
        KUBELET_DOES_NOT_RESIZE,
        f"kubelet {version} resizes no pod in place: its feature gate InPlacePodVerticalScaling is off",
    )
    assert answered.unmodelled == ()


def test_the_alpha_of_resizing_is_said_not_to_be_replayed() -> None:
    answered = answer(
        node_state(version="v1.32.13", gates="InPlacePodVerticalScaling"), "request:cpu=1", "request:cpu=2"
    )
    remark = "feature gate InPlacePodVerticalScaling is alpha in kubelet v1.32.13: what it does there is not replayed"
    assert (answered.message, answered.unmodelled) == (remark, (remark,))


def test_the_gate_of_resizing_counts_until_1_34() -> None:
    state = node_state()
    for version, resized in (("v1.33.0", False), ("v1.34.4", False), ("v1.35.0", True)):
        settings = replace(state.kubelet, version=version, feature_gates={"InPlacePodVerticalScaling": False})
        answered = answer(replace(state, kubelet=settings), "request:cpu=1", "request:cpu=2")
        assert (answered.reason == "") == resized, version
