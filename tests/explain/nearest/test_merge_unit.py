"""What could be merged and given but for one amount."""

from dataclasses import replace

import pytest
from tests.builders import node_state, pod

from topomend.explain.nearest.merge_unit import Unit
from topomend.explain.nearest.refused_pod import RefusedPod
from topomend.explain.nearest.varied_amount import VariedAmount, varied_amounts
from topomend.replay import qos
from topomend.replay.container_manager import ContainerManager, start

EIGHT = "sockets:2 numa:4 cores:8 threads:2 memory:64Gi device:vendor.com/gpu@0=2"


def unit_of(policy: str, *containers: str, scope: str = "container") -> tuple[Unit, dict[str, VariedAmount]]:
    """The first container, in scope pod the pod, and the amounts of the first container by their resource."""
    state, asked = node_state(EIGHT, policy, memory_manager="Static", scope=scope), pod("p", *containers)
    kubelet = start(state.machine, state.kubelet)
    assert isinstance(kubelet, ContainerManager)
    refused = RefusedPod(state, kubelet, replace(asked, qos_class=qos.qos_class(asked, kubelet.gates)))
    amounts = [amount for amount in varied_amounts(state, kubelet, refused.pod) if amount.position == 0]
    position = 0 if refused.by_container else None
    return Unit(refused, refused.fresh, position), {amount.resource: amount for amount in amounts}


def test_the_masks_in_common_leave_out_the_resource_that_is_varied() -> None:
    unit, amounts = unit_of("restricted", "cpu=24 memory=20Gi")
    assert unit.common() == {}
    without_cpus, without_memory = unit.common(amounts["cpu"]), unit.common(amounts["memory"])
    assert without_cpus is not None
    assert sorted(without_cpus[1]) == [1 << node for node in range(8)]
    assert without_memory is not None
    assert list(without_memory) == [2]


def test_single_numa_nodes_are_all_that_its_policy_has_in_common() -> None:
    unit, amounts = unit_of("single-numa-node", "cpu=24 memory=20Gi vendor.com/gpu=1")
    assert unit.common(amounts["cpu"]) == {1: [1]}
    assert unit.common(amounts["memory"]) == {}
    assert not unit.could_merge()


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_policies_that_admit_every_merge_need_no_mask_in_common(policy: str) -> None:
    unit, _ = unit_of(policy, "cpu=24 memory=20Gi vendor.com/gpu=1")
    assert unit.common() is None
    assert unit.could_merge()


def test_a_container_could_be_given_what_it_asks_but_for_the_amount_of_which_too_little_is_free() -> None:
    unit, amounts = unit_of("best-effort", "cpu=4 memory=1Gi vendor.com/gpu=3")
    container = unit.refused.pod.containers[0]
    assert not unit.could_allocate(container)
    assert unit.could_allocate(container, amounts["vendor.com/gpu"])
    assert not unit.could_allocate(container, amounts["cpu"])


def test_only_a_whole_pod_has_a_need_that_its_containers_share() -> None:
    containers = "cpu=3 memory=1Gi vendor.com/gpu=1", "cpu=4 memory=1Gi"
    unit, amounts = unit_of("restricted", *containers, scope="pod")
    assert unit.need(unit.refused.pod, amounts["cpu"]) == ("cpu", 7)
    assert unit.need(unit.refused.pod, amounts["vendor.com/gpu"]) == ("vendor.com/gpu", 1)
    unit, amounts = unit_of("restricted", *containers)
    assert unit.need(unit.refused.pod, amounts["cpu"]) is None
