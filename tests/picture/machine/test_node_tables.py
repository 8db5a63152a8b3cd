"""The tables of a node say what its drawing says."""

from tests.builders import node_state, pod, running
from tests.picture.drawn import table_of

from topomend.model.devices.claimed_device import ContainerClaim
from topomend.picture.machine.facts import Subject
from topomend.picture.machine.node import section_of

GPUS = "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1"


def test_the_tables_say_who_holds_what_and_what_is_free_on_each_numa_node() -> None:
    state = node_state(GPUS, memory_manager="Static", reserved_memory="1Gi,1Gi")
    state = running(state, pod("x", "cpu=2 memory=2Gi vendor.com/gpu=1"))
    section = section_of(Subject(state))
    assert table_of(section, "Who holds").rows == [
        ("a", "ns/x c0", "1-2", "memory 2Gi on NUMA 0", "vendor.com/gpu gpu-0-0"),
    ]
    first, second = table_of(section, "NUMA nodes").rows
    assert first == (
        "0", "0-3", "3", "0", "memory 8Gi of which 5Gi free", "vendor.com/gpu gpu-0-0: ns/x c0", "10 32",
    )  # fmt: skip
    assert second[5] == "vendor.com/gpu gpu-1-0: free"


def test_a_claimed_device_whose_numa_node_is_not_known_is_in_a_table_of_its_own() -> None:
    claims = [ContainerClaim("ns", name, "c0", "c", "gpu.example.com", "pool", ("g0",)) for name in ("x", "y")]
    section = section_of(Subject(node_state(), claims))
    assert table_of(section, "Claimed devices").rows == [("g0", "gpu.example.com", "shared by ns/x c0, ns/y c0")]


def test_where_nobody_holds_anything_there_is_no_table_of_holders() -> None:
    captions = [table.caption for table in section_of(Subject(node_state())).tables]
    assert captions == ["NUMA nodes of a"]
