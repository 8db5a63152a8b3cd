"""Where the devices of a node are drawn, and who has them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import guaranteed_pod, node_state
from tests.picture.drawn import of_class, svg_of, svg_of_node, table_of, texts

from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.machine import PCIDevice
from topomend.model.nodes.node_state import Device, NodeState
from topomend.picture.machine.devices import MOST_FUNCTIONS, functions_near
from topomend.picture.machine.facts import Subject
from topomend.picture.machine.node import section_of

GPUS = "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1"


def test_devices_are_at_their_numa_node_with_their_holder_and_others_elsewhere() -> None:
    state = node_state(GPUS, pods=[guaranteed_pod("x", 1, gpu=1)])
    extra = (
        Device("v.com/nic", "near-both", (0, 1)),
        Device("v.com/nic", "nowhere"),
        Device("v.com/nic", "sick", (1,), healthy=False),
        Device("v.com/nic", "wrong", (9,)),
    )
    state = replace(state, devices=(*state.devices, *extra))
    svg = svg_of_node(state)
    assert len(of_class(svg, "device")) == 6
    assert {"a gpu-0-0", "near-both @0,1", "sick unhealthy", "near no NUMA node or several"} <= set(texts(svg))
    rows = table_of(section_of(Subject(state)), "Devices of").rows
    assert [(row[0], row[2]) for row in rows] == [
        ("near-both", "NUMA 0, NUMA 1"),
        ("nowhere", "not known"),
        ("wrong", "NUMA 9"),
    ]


def test_devices_of_claims_are_at_their_place_with_all_who_have_them() -> None:
    claims = [ContainerClaim("ns", name, "c0", "c", "gpu.example.com", "pool", ("g0",)) for name in ("x", "y")]
    claims.append(ContainerClaim("ns", "y", "c0", "c", "gpu.example.com", "pool", ("g1",)))
    places = {("gpu.example.com", "pool", "g0"): 1, ("gpu.example.com", "pool", "g1"): 7}
    section = section_of(Subject(node_state(), claims, places))
    assert {"+ g0", "b g1"} <= set(texts(svg_of(section)))
    _, second = table_of(section, "NUMA nodes").rows
    assert second[5] == "gpu.example.com g0 by a claim"


def function(number: int, **fields: Any) -> PCIDevice:
    return PCIDevice(f"0000:01:00.{number}", 0x020000, 0x8086, 1, numa_node=0)._replace(**fields)


def with_pci(*functions: PCIDevice) -> NodeState:
    state = node_state()
    return replace(state, machine=replace(state.machine, pci_devices=functions))


def test_pci_functions_of_a_kind_are_one_box_where_they_are_many_and_bridges_are_left_out() -> None:
    many = [function(number) for number in range(MOST_FUNCTIONS + 1)]
    state = with_pci(*many, function(90, device_id=2, names=("eth9",)), function(91, pci_class=0x060400))
    assert [number for _, number in functions_near(state.machine, 0)] == [MOST_FUNCTIONS + 1, 1]
    assert {f"{MOST_FUNCTIONS + 1} of network", "0000:01:00.90 eth9"} <= set(texts(svg_of_node(state)))
    [first, second] = table_of(section_of(Subject(state)), "PCI devices").rows
    assert (first[4], second[4]) == (str(MOST_FUNCTIONS + 1), "1")


@pytest.mark.parametrize("place", [None, 9])
def test_a_function_without_a_numa_node_of_the_machine_is_not_lost(place: int | None) -> None:
    [(found, _)] = functions_near(with_pci(function(0, numa_node=place)).machine, None)
    assert found.address == "0000:01:00.0"
