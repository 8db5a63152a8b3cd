"""A kubelet that does otherwise than predicted is found, and chance and other pods are not taken for a fault."""

from dataclasses import replace

import pytest
from tests.builders import guaranteed_pod, node_state, pod_allocation, running
from tests.selftest.seen import OWN, predicted, seen

from topomend.model.bitmask import parse_id_list
from topomend.model.nodes.node_state import ContainerAllocation, DeviceAllocation, PodAllocation
from topomend.selftest.compare import (
    Agreement,
    Answer,
    Judgement,
    Prediction,
    Seen,
    held_text,
    is_held_as_predicted,
    judge,
    what_changed,
)

STATE = node_state(
    "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=2,1=1", memory_manager="Static", reserved_memory="512Mi"
)


def as_predicted(prediction: Prediction) -> Answer:
    verdict = prediction.verdict
    return Answer(verdict.admitted, verdict.reason, verdict.message, prediction.allocation)


def judged(prediction: Prediction, answer: Answer, after: Seen | None = None) -> Judgement:
    return judge(prediction, answer, after or prediction.seen)


def with_container(prediction: Prediction, name: str, **fields: object) -> Answer:
    """The answer as predicted, but for this of one container."""
    allocation = prediction.allocation
    assert allocation
    containers = tuple(
        replace(each, **fields) if each.name == name else each  # type: ignore[arg-type]
        for each in allocation.containers
    )
    return Answer(admitted=True, allocation=replace(allocation, containers=containers))


@pytest.mark.parametrize("name", ["shared-cpu", "one-cpu", "numa-node", "beyond", "device-1-cpu", "memory", "sidecar"])
def test_a_kubelet_that_does_as_predicted_agrees(name: str) -> None:
    prediction = predicted(STATE, name)
    assert judged(prediction, as_predicted(prediction)) == Judgement(Agreement.AGREES)


def test_a_pod_that_is_refused_and_should_not_be_differs() -> None:
    answer = Answer(admitted=False, reason="TopologyAffinityError", message="Pod was rejected: no")
    judgement = judged(predicted(STATE, "one-cpu"), answer)
    assert judgement.agreement is Agreement.DIFFERS
    assert judgement.why == (
        "predicted: admitted; what happened: refused, TopologyAffinityError: Pod was rejected: no",
    )


def test_a_pod_that_is_admitted_and_should_not_be_differs() -> None:
    answer = Answer(admitted=True, allocation=pod_allocation("beyond", "1-5", namespace=OWN))
    assert judged(predicted(STATE, "beyond"), answer).agreement is Agreement.DIFFERS


def test_another_reason_differs() -> None:
    prediction = predicted(STATE, "beyond")
    assert judged(prediction, replace(as_predicted(prediction), reason="OutOfcpu")).agreement is Agreement.DIFFERS


def test_other_cpus_differ_and_are_named() -> None:
    prediction = predicted(STATE, "one-cpu")
    judgement = judged(prediction, with_container(prediction, "main", cpus=parse_id_list("7")))
    assert judgement.agreement is Agreement.DIFFERS
    assert judgement.why == ("container main: CPUs 1 predicted, CPUs 7 allocated",)


def test_shared_cpus_in_the_place_of_exclusive_ones_differ() -> None:
    prediction = predicted(node_state(), "one-cpu")
    assert judged(prediction, Answer(admitted=True)).why == ("container main: CPUs 1 predicted, shared CPUs allocated",)


def test_memory_of_another_numa_node_differs() -> None:
    prediction = predicted(STATE, "one-cpu")
    assert prediction.allocation
    (block,) = prediction.allocation.containers[0].memory
    judgement = judged(prediction, with_container(prediction, "main", memory=(replace(block, numa_nodes=2),)))
    assert judgement.why == (
        "container main: 32Mi memory on NUMA node 0 predicted, 32Mi memory on NUMA node 1 allocated",
    )


def test_the_other_of_two_equal_devices_agrees() -> None:
    prediction = predicted(STATE, "device-1-cpu")
    assert prediction.allocation
    (devices,) = prediction.allocation.containers[0].devices
    near = next(each.numa_nodes for each in STATE.devices if each.id == devices.ids[0])
    other = next(each.id for each in STATE.devices if each.numa_nodes == near and each.id != devices.ids[0])
    answer = with_container(prediction, "main", devices=(replace(devices, ids=(other,)),))
    assert judged(prediction, answer).agreement is Agreement.AGREES


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ("far", "container main: 1 of 1 vendor.com/gpu near NUMA node 0 predicted, 0 allocated"),
        ("strange", "container main: vendor.com/gpu strange allocated, which was not published as free"),
        ("", "container main: 1 vendor.com/gpu predicted, 0 allocated"),
    ],
    ids=["of another NUMA node", "that is not there", "none"],
)
def test_a_device_that_the_kubelet_does_not_choose_among_differs(found: str, why: str) -> None:
    prediction = predicted(STATE, "device-1-cpu")
    far = next(each.id for each in STATE.devices if each.numa_nodes == (1,))
    ids = {"far": (far,), "strange": ("strange",), "": ()}[found]
    answer = with_container(prediction, "main", devices=(DeviceAllocation("vendor.com/gpu", ids),) if ids else ())
    assert judged(prediction, answer) == Judgement(Agreement.DIFFERS, (why,))


def test_a_pod_that_holds_something_and_should_not_differs() -> None:
    answer = Answer(admitted=True, allocation=pod_allocation("shared-cpu", "3", namespace=OWN))
    judgement = judged(predicted(node_state(), "shared-cpu"), answer)
    assert judgement.why == ("container c0: shared CPUs predicted, CPUs 3 allocated",)


def test_an_init_container_that_is_not_published_is_not_compared() -> None:
    prediction = predicted(STATE, "init-container")
    assert prediction.allocation
    shown = tuple(each for each in prediction.allocation.containers if not each.init)
    assert len(shown) < len(prediction.allocation.containers)
    answer = Answer(admitted=True, allocation=replace(prediction.allocation, containers=shown))
    assert judged(prediction, answer).agreement is Agreement.AGREES
    wrong = with_container(prediction, "init", cpus=parse_id_list("6-7"))
    assert judged(prediction, wrong).agreement is Agreement.DIFFERS


def test_while_a_part_is_published_the_pod_does_not_hold_what_was_predicted() -> None:
    prediction = predicted(STATE, "device-1-cpu")
    assert prediction.allocation
    part = with_container(prediction, "main", devices=()).allocation
    assert part
    assert is_held_as_predicted(prediction, prediction.allocation)
    assert not is_held_as_predicted(prediction, part)


def test_what_replay_does_not_model_makes_a_difference_unsure() -> None:
    prediction = predicted(STATE, "one-cpu")
    doubtful = replace(prediction, verdict=replace(prediction.verdict, unmodelled=("a feature gate",)))
    judgement = judged(doubtful, Answer(admitted=True))
    assert judgement.agreement is Agreement.UNSURE
    assert "replay does not model: a feature gate" in judgement.why


OWN_POD = OWN, "one-cpu"


def test_other_pods_that_came_make_a_difference_unsure_and_an_agreement_none() -> None:
    prediction = predicted(STATE, "one-cpu")
    after = seen(STATE, uids=["new"])
    judgement = judged(prediction, Answer(admitted=True), after)
    assert judgement.agreement is Agreement.UNSURE
    assert judgement.why[-1] == "other pods came to the node or left it meanwhile"
    assert judged(prediction, as_predicted(prediction), after).agreement is Agreement.AGREES


def test_each_change_by_others_is_named() -> None:
    before = seen(STATE)
    other = seen(running(STATE, guaranteed_pod("other", 1)))
    assert what_changed(before, other, OWN_POD) == "what other pods hold changed meanwhile"
    fewer = seen(replace(STATE, devices=STATE.devices[1:]))
    assert what_changed(before, fewer, OWN_POD) == "devices of the node changed meanwhile"
    settings = replace(STATE.kubelet, topology_manager_policy="none")
    set_otherwise = seen(replace(STATE, kubelet=settings))
    assert what_changed(before, set_otherwise, OWN_POD).startswith("the machine or the kubelet's settings")
    cordoned = replace(before, node=replace(before.node, unschedulable=True))
    assert what_changed(before, cordoned, OWN_POD) == "the Node object changed meanwhile"


def test_the_tests_own_pod_is_no_change_by_others() -> None:
    own = PodAllocation(*OWN_POD, containers=(ContainerAllocation("main", cpus=2),))
    after = seen(replace(STATE, pods=(*STATE.pods, own)))
    assert what_changed(seen(STATE), after, OWN_POD) == ""


def test_what_is_held_is_told_in_one_line() -> None:
    prediction = predicted(STATE, "device-1-cpu")
    assert held_text(STATE, prediction.allocation, ["main"]) == "CPUs 1, memory on 0, 1 vendor.com/gpu on 0"
    prediction = predicted(STATE, "sidecar")
    assert held_text(STATE, prediction.allocation, ["sidecar", "main"]) == (
        "sidecar: CPUs 1, memory on 0; main: CPUs 2, memory on 0"
    )
