"""Which pods are of one kind, what each kind weighs, and how many are kept whatever pods there are."""

from dataclasses import replace

import pytest
from tests.builders import node, node_state, pod

from topomend.decide.pools.typical_pods import (
    MAX_CONTAINERS,
    MAX_KINDS,
    WAITING,
    WAITING_OF_NAMESPACE,
    Mix,
    kinds_held,
    kinds_of,
    kinds_waiting,
    merged,
    mix_of,
    of_each_namespace,
    times,
)
from topomend.model.nodes.node import Taint
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement

ANYWHERE = Placement()
GPU = "vendor.com/gpu"


def mix(*pods: Pod) -> Mix:
    return mix_of(kinds_of(pods))


def test_pods_are_of_one_kind_whatever_their_names_and_count_for_what_they_ask() -> None:
    found = mix(
        pod("a", "cpu=4 memory=1Gi"), pod("b", "cpu=4 memory=1Gi", namespace="other"), pod("c", "cpu=2 memory=1Gi")
    )
    assert [(typical.number, typical.asked["cpu"]) for typical in found.pods] == [(2, 8), (1, 2)]
    assert sorted(found.shares("cpu").values()) == [0.2, 0.8]


def test_amounts_of_memory_that_differ_little_are_of_one_kind_which_stands_for_the_largest() -> None:
    [typical] = mix(pod("a", "cpu=4 memory=8Gi"), pod("b", "cpu=4 memory=8300Mi")).pods
    [container] = typical.pod.containers
    assert container.resources.requests["memory"] == 8300 * (1 << 20) * 1000
    assert len(mix(pod("a", "cpu=4 memory=8Gi"), pod("b", "cpu=4 memory=12Gi")).pods) == 2


def test_a_pod_that_a_manager_gives_nothing_is_no_typical_one() -> None:
    shared = pod("a", "request:cpu=4"), pod("b", "request:cpu=500m request:memory=1Gi"), pod("c")
    assert mix(*shared) == Mix()


def test_a_pod_of_very_many_containers_is_no_typical_one() -> None:
    assert mix(pod("a", *["cpu=1 memory=1Mi"] * (MAX_CONTAINERS + 1))) == Mix()
    assert len(mix(pod("a", *["cpu=1 memory=1Mi"] * MAX_CONTAINERS)).pods) == 1


def test_a_burstable_pod_counts_for_its_devices_alone() -> None:
    [typical] = mix(pod("a", f"request:cpu=4 {GPU}=2")).pods
    assert typical.asked == {GPU: 2}


def test_an_init_container_counts_where_it_asks_for_more_than_the_others() -> None:
    [typical] = mix(pod("a", "init cpu=6 memory=1Gi", "cpu=2 memory=1Gi", "cpu=1 memory=1Gi")).pods
    assert typical.asked["cpu"] == 6


def test_what_pods_hold_on_a_node_is_what_they_asked_for() -> None:
    pods = [pod(name, f"cpu=2 memory=1Gi {GPU}=1") for name in ("x", "y")]
    state = node_state(f"numa:2 cores:4 memory:8Gi device:{GPU}@0=1,1=1", memory_manager="Static", pods=pods)
    assert merged([kinds_held(state)]).keys() == kinds_of(pods).keys()
    [typical] = mix_of(kinds_held(state)).pods
    assert typical.asked == {"cpu": 4, "memory": 2 << 30, GPU: 2}


def test_a_pod_on_a_node_that_pins_no_memory_is_known_by_its_cpus() -> None:
    [typical] = mix_of(kinds_held(node_state(pods=[pod("x", "cpu=3 memory=4Gi")]))).pods
    assert typical.asked["cpu"] == 3


@pytest.mark.parametrize("number", [0, -1])
def test_a_workload_without_pods_has_no_kinds(number: int) -> None:
    assert times(kinds_of([pod("a", "cpu=4 memory=1Gi")]), number) == {}
    assert mix_of({}) == Mix()


def test_ten_thousand_odd_pods_displace_no_kind_that_asks_for_more() -> None:
    odd = [
        pod(f"odd-{number}", f"cpu=1 memory={1 + number % 97}Gi", f"cpu=1 memory={1 + number // 97}Gi")
        for number in range(10_000)
    ]
    train = times(kinds_of([pod("train", f"cpu=48 memory=1Gi {GPU}=4")]), 1_000)
    found = mix_of(merged([kinds_of(odd), train]))
    assert len(found.pods) == MAX_KINDS
    assert found.pods[0].asked == {"cpu": 48_000, "memory": 1000 << 30, GPU: 4_000}
    assert found.covered(GPU) == 1.0
    assert 0.7 < found.covered("cpu") < 0.8
    assert sum(found.shares("cpu").values()) == pytest.approx(1.0)


def test_of_pods_that_wait_each_namespace_counts_with_few() -> None:
    greedy = [(pod(f"g{number}", "cpu=8 memory=1Gi", namespace="greedy"), ANYWHERE) for number in range(10_000)]
    honest = (pod("h", "cpu=4 memory=1Gi", namespace="honest"), ANYWHERE)
    assert len(of_each_namespace([*greedy, honest])) == WAITING_OF_NAMESPACE + 1
    many = ((pod("p", "cpu=1 memory=1Gi", namespace=f"n{number}"), ANYWHERE) for number in range(5_000))
    assert len(of_each_namespace(many)) == WAITING


def test_a_waiting_pod_counts_in_pools_that_it_may_go_to_and_is_not_too_large_for() -> None:
    small, tainted = node("a", cpus=7), node("b", cpus=7, taints=(Taint("gpu", "NoSchedule"),))
    waiting = [(pod("fits", "cpu=4 memory=1Gi"), ANYWHERE), (pod("huge", "cpu=400 memory=1Gi"), ANYWHERE)]
    assert kinds_waiting(waiting, [small]).keys() == kinds_of([pod("p", "cpu=4 memory=1Gi")]).keys()
    assert kinds_waiting(waiting, [tainted]) == {}
    assert kinds_waiting(waiting, []) == {}


def test_what_a_pod_asks_of_topomend_makes_another_kind_of_it() -> None:
    plain = pod("a", "cpu=4 memory=1Gi")
    assert len(mix(plain, replace(plain, alignment="single-numa-node")).pods) == 2
