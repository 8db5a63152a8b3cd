from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topomend.discover.allocations import AllocationReader
from topomend.discover.bounds import why_implausible
from topomend.model.nodes.node_state import (
    ContainerAllocation,
    Device,
    DeviceAllocation,
    MemoryBlock,
    NUMANodeMemory,
    PodAllocation,
)

from .machines import Lister, container, pod, serving

GPU = "vendor.com/gpu"


def holding(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"pods": (PodAllocation("default", "p", "uid-1", (ContainerAllocation(name, **fields),)),)}


def why(
    pods: tuple[PodAllocation, ...] = (),
    devices: tuple[Device, ...] = (),
    memory: tuple[NUMANodeMemory, ...] | None = None,
) -> str:
    return why_implausible(pods, devices, memory)


def test_what_a_kubelet_can_tell_is_plausible() -> None:
    block = MemoryBlock("hugepages-1Gi", 0b11, 1 << 40)
    gpus = DeviceAllocation(GPU, ("a", "b"))
    book = (NUMANodeMemory(0, 1, 0b11, {"memory": 1}),)
    assert why(**holding(memory=(block,), devices=(gpus,)), devices=(Device(GPU, "a", (-1,)),), memory=book) == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pods": (PodAllocation("", "p"),)}, "a namespace without a name"),
        ({"pods": (PodAllocation("n" * 64, "p"),)}, "64 letters long"),
        ({"pods": (PodAllocation("n", "a\nb"),)}, r"a pod named 'a\nb', 3 letters long"),
        ({"pods": (PodAllocation("n", "p" * 254),)}, "254 letters long"),
        ({"pods": (PodAllocation("n", "p", "\ud800"),)}, r"a uid named '\ud800'"),
        (holding("\x00"), r"a container named '\x00'"),
        (holding(memory=(MemoryBlock("", 1, 1),)), "a resource without a name"),
        (holding(memory=(MemoryBlock("memory", 1, 1 << 63),)), "a memory block of 9223372036854775808 bytes"),
        (holding(memory=(MemoryBlock("memory", (1 << 300) - 1, 1),)), "300 NUMA nodes of one memory block"),
        (holding(memory=(MemoryBlock("memory", 1, 1),) * 257), "257 memory blocks in one container"),
        (holding(devices=(DeviceAllocation(GPU, ("",)),)), "a device without a name"),
        (holding(devices=(DeviceAllocation(GPU, ("a",)),) * 257), "257 resources in one container"),
        ({"pods": (PodAllocation("n", "p", "", (ContainerAllocation("c"),) * 257),)}, "257 containers"),
        ({"devices": (Device("r" * 318, "a"),)}, "a resource named 'rrrr"),
        ({"devices": (Device(GPU, "d" * 513),)}, "513 letters long"),
        ({"devices": (Device(GPU, "a", tuple(range(257))),)}, "257 NUMA nodes of one device"),
        ({"devices": tuple(Device(GPU, str(number)) for number in range(4097))}, "4097 devices of vendor.com/gpu"),
        ({"memory": (NUMANodeMemory(0, 0, 1),) * 257}, "257 NUMA nodes in the Memory Manager's state"),
        ({"memory": (NUMANodeMemory(0, 0, (1 << 257) - 1),)}, "257 NUMA nodes in one memory group"),
        ({"memory": (NUMANodeMemory(0, 0, 1, {f"r{n}": 1 for n in range(17)}),)}, "17 resources of one NUMA node"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_an_implausible_value_is_named_in_one_short_line(fields: dict[str, Any], words: str) -> None:
    problem = why(**fields)
    assert words in problem
    assert problem.isprintable()
    assert len(problem) < 200


@pytest.fixture
def lister(tmp_path: Path) -> Iterator[Lister]:
    lister = Lister()
    with serving(tmp_path / "sock", lister):
        yield lister


def test_an_implausible_answer_is_said_and_the_last_known_shown_until_the_next(tmp_path: Path, lister: Lister) -> None:
    reader = AllocationReader(tmp_path / "sock", None)
    lister.listed.pod_resources.append(pod("good", container("main", [1])))
    good = reader.read()
    lister.listed.pod_resources.append(pod("\x1b[31m", container("main", [2])))
    allocations = reader.read()
    assert allocations.reason == "Implausible"
    assert r"a pod named '\x1b[31m', 5 letters long; the last known state is shown" in allocations.problem
    assert allocations.pods == good.pods
    del lister.listed.pod_resources[1]
    assert reader.read().reason == ""
