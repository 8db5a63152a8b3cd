"""A machine that was written as files is the same machine when it is read back."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from _pytest.mark import ParameterSet
from tests.seeds import SEED
from verify.oracle.random_cases.made import random_shape

from topomend.discover.host import read_host
from topomend.model.bitmask import mask_of
from topomend.model.machine import Core, Hardware, HugePages, Machine, NUMANode
from topomend.model.nodes.node_state import Device
from topomend.model.shapes.known_machines import MACHINES
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import cpu_map, write_machine

SHAPES = [
    "sockets:1 numa:1 cores:1",
    "sockets:2 numa:2 cores:4 threads:2 memory:16Gi",
    "sockets:2 numa:4 cores:16 threads:2 l3:4 memory:64Gi hugepages-2Mi:512 hugepages-1Gi:4",
]


@pytest.mark.parametrize("text", SHAPES)
def test_a_machine_is_read_back_as_it_was_written(text: str, tmp_path: Path) -> None:
    machine = parse_shape(text).machine()
    write_machine(tmp_path, machine)
    host = read_host(tmp_path)
    assert replace(host.machine, pci_devices=()) == machine
    assert host.problems == ()


MANY_CPUS = 144
"""Machines with more are written at night: each CPU has some forty files."""


def _case(name: str) -> ParameterSet:
    large = parse_shape(name).machine().cpus.bit_count() > MANY_CPUS
    return pytest.param(name, marks=[pytest.mark.night] if large else [])


@pytest.mark.parametrize("name", [_case(machine.name) for machine in MACHINES])
def test_every_known_machine_is_read_back_as_its_shape_says(name: str, tmp_path: Path) -> None:
    machine = parse_shape(name).machine()
    write_machine(tmp_path, machine)
    host = read_host(tmp_path)
    assert replace(host.machine, pci_devices=()) == machine
    assert host.problems == ()


@pytest.mark.parametrize("part", range(2))
def test_random_machines_are_read_back_as_their_shapes_say(part: int, tmp_path: Path) -> None:
    random = Random(f"{SEED} {part}")
    for number in range(10):
        text = random_shape(random)
        machine = parse_shape(text).machine()
        write_machine(tmp_path / str(number), machine)
        host = read_host(tmp_path / str(number))
        assert replace(host.machine, pci_devices=()) == machine, text
        assert host.problems == (), text


def test_memory_only_nodes_offline_and_isolated_cpus_are_read_back(tmp_path: Path) -> None:
    machine = Machine(
        numa_nodes=(
            NUMANode(0, 8 << 30, (HugePages(2 << 20, 16),), (10, 20, 17)),
            NUMANode(1, 0, (), (20, 10, 28)),
            NUMANode(4, 4 << 30, (), (17, 28, 10)),
        ),
        cores=(Core(mask_of([0, 4]), 0, 0), Core(mask_of([1, 7]), 0, 0), Core(mask_of([2, 6]), 1, 1)),
        offline=mask_of([3, 5]),
        isolated=mask_of([2]),
        hardware=Hardware(l3_caches=(mask_of([0, 1, 4, 7]), mask_of([2, 6]))),
    )
    write_machine(tmp_path, machine)
    assert replace(read_host(tmp_path).machine, pci_devices=()) == machine


def test_devices_stand_below_root_ports_of_their_numa_node(tmp_path: Path) -> None:
    shape = parse_shape("sockets:2 numa:1 cores:2 device:vendor.com/gpu@0=1,1=10 device:vendor.com/nic@1=1")
    write_machine(tmp_path, shape.machine(), shape.offered_devices())
    functions = read_host(tmp_path).machine.pci_devices
    assert [f.numa_node for f in functions if f.pci_class == 0x030200] == [0] + [1] * 10
    (nic,) = (f for f in functions if f.pci_class == 0x020000)
    assert (nic.numa_node, nic.path) == (1, ("0001:00:02.2",))
    assert nic.link is not None
    assert nic.link.max_width == 16


def test_a_resource_with_very_many_devices_still_makes_a_possible_machine(tmp_path: Path) -> None:
    shape = parse_shape("sockets:1 numa:1 cores:2 device:vendor.com/vf@0=1000")
    write_machine(tmp_path, shape.machine(), shape.offered_devices())
    host = read_host(tmp_path)
    assert len({function.address for function in host.machine.pci_devices}) == 240
    assert host.problems == ()


def test_devices_without_one_numa_node_have_no_pci_function(tmp_path: Path) -> None:
    machine = parse_shape("sockets:1 numa:2 cores:1").machine()
    devices = [Device("a/b", "x"), Device("a/b", "y", (0, 1)), Device("a/b", "z", (-1,)), Device("a/b", "w", (7,))]
    write_machine(tmp_path, machine, devices)
    assert read_host(tmp_path).machine.pci_devices == ()


@pytest.mark.parametrize(
    ("cpus", "width", "text"),
    [
        ([0], 1, "00000001"),
        ([0, 31], 32, "80000001"),
        ([32], 33, "00000001,00000000"),
        ([], 64, "00000000,00000000"),
    ],
)
def test_cpu_maps_are_groups_of_32_bits_highest_first(cpus: list[int], width: int, text: str) -> None:
    assert cpu_map(mask_of(cpus), width) == text
