"""Replays of a refused pod with one container changed: the answers of whole admissions."""

from dataclasses import replace
from random import Random

import pytest
from tests.builders import node_state, pod
from tests.seeds import SEED, cases
from verify.nearest.counterfactual import RefusedPod as Case
from verify.nearest.counterfactual import refused_pods

from topomend.explain.nearest.refused_pod import RefusedPod
from topomend.explain.nearest.varied_amount import VariedAmount, varied_amounts
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay import qos
from topomend.replay.admission import is_admitted
from topomend.replay.container_manager import ContainerManager, start

EIGHT = "sockets:2 numa:4 cores:8 threads:2 memory:64Gi device:vendor.com/gpu@0=2"


def refused(state: NodeState, asked: Pod) -> RefusedPod:
    kubelet = start(state.machine, state.kubelet)
    assert isinstance(kubelet, ContainerManager)
    return RefusedPod(state, kubelet, replace(asked, qos_class=qos.qos_class(asked, kubelet.gates)))


def cpus_of(asked: RefusedPod, position: int) -> VariedAmount:
    amounts = varied_amounts(asked.node, asked.kubelet, asked.pod)
    return next(amount for amount in amounts if (amount.position, amount.resource) == (position, "cpu"))


def starts(case: Case) -> bool:
    return isinstance(start(case.state.machine, case.state.kubelet), ContainerManager)


@pytest.mark.parametrize("seed", [SEED])
def test_a_replay_from_the_changed_container_on_has_the_answer_of_a_whole_admission(seed: int) -> None:
    admitted = asked = 0
    for number in range(seed, seed + cases(50, 150)):
        random = Random(number)
        for case in filter(starts, refused_pods(number)):
            shared = refused(case.state, case.pod)
            for amount in varied_amounts(case.state, shared.kubelet, shared.pod):
                for k in {amount.first, amount.last, random.randint(amount.first, max(amount.first, amount.last))}:
                    changed = amount.put_into(shared.pod, amount.at(k) * 1000)
                    answer = shared.is_admitted_with(amount, amount.at(k) * 1000)
                    assert answer == is_admitted(case.state, changed), (number, case.pod.name, amount, k)
                    asked, admitted = asked + 1, admitted + answer
    assert 0 < admitted < asked


@pytest.mark.parametrize("seed", [SEED])
def test_a_node_that_lacks_a_resource_in_all_refuses_whatever_else_changes(seed: int) -> None:
    lacking = 0
    for number in range(seed, seed + cases(50, 150)):
        for case in filter(starts, refused_pods(number)):
            shared = refused(case.state, case.pod)
            for amount in varied_amounts(case.state, shared.kubelet, shared.pod):
                for k in {amount.first, amount.first // 2, amount.last}:
                    changed = amount.put_into(shared.pod, amount.at(k) * 1000)
                    if shared.fresh.lacks(changed):
                        lacking += 1
                        assert not is_admitted(case.state, changed), (number, case.pod.name, amount, k)
    assert lacking > 0


def test_what_init_containers_leave_for_reuse_is_not_counted_twice() -> None:
    state = node_state("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=2", "best-effort")
    init = "init cpu=7 memory=1Gi vendor.com/gpu=2"
    fits = refused(state, pod("p", init, "cpu=7 memory=1Gi vendor.com/gpu=2"))
    assert fits.fresh.lacks(fits.pod) == set()
    exceeds = refused(state, pod("p", init, "cpu=4 memory=1Gi vendor.com/gpu=2", "cpu=4 memory=1Gi vendor.com/gpu=1"))
    assert exceeds.fresh.lacks(exceeds.pod) == {"cpu", "vendor.com/gpu"}


def test_memory_that_the_node_lacks_in_all_is_named() -> None:
    state = node_state(EIGHT, "restricted", memory_manager="Static")
    asked = refused(state, pod("p", *["cpu=1 memory=300Gi"] * 2))
    assert asked.fresh.lacks(asked.pod) == {"memory"}


def test_no_container_is_replayed_after_one_that_is_refused() -> None:
    state = node_state(EIGHT)
    asked = refused(state, pod("p", "cpu=17 memory=1Gi", "cpu=1 memory=1Gi"))
    assert asked.before(0) is asked.fresh
    assert asked.before(1) is None
    assert not asked.is_admitted_with(cpus_of(asked, 1), 1000)


def test_a_replay_leaves_the_managers_for_the_next_one_as_they_were() -> None:
    state = node_state(EIGHT, memory_manager="Static")
    asked = refused(state, pod("p", "cpu=14 memory=60Gi vendor.com/gpu=2", "cpu=17 memory=1Gi"))
    assert [asked.is_admitted_with(cpus_of(asked, 1), 14_000) for _ in range(12)] == [True] * 12
    fits = refused(state, pod("p", "cpu=14 memory=60Gi vendor.com/gpu=2", "cpu=14 memory=1Gi"))
    assert [fits.is_admitted_with(cpus_of(fits, 0), 12_000) for _ in range(12)] == [True] * 12


def test_a_manager_that_refuses_is_known_only_where_managers_share_no_affinity() -> None:
    asked = pod("p", "cpu=2 memory=600Gi vendor.com/gpu=3")
    alone = refused(node_state(EIGHT, "none", memory_manager="Static"), asked)
    assert alone.refusing_providers == {"memory", "device"}
    tied = refused(node_state(EIGHT, "best-effort", memory_manager="Static"), asked)
    assert tied.refusing_providers == set()
