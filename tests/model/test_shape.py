import pytest

from topomend.model.bitmask import format_id_list
from topomend.model.shape import InvalidShape, parse_shape


def test_cpus_are_numbered_as_linux_does_first_threads_first() -> None:
    machine = parse_shape("sockets:2 numa:2 cores:2 threads:2").machine()
    assert {node: format_id_list(cpus) for node, cpus in machine.cpus_of_numa_node.items()} == {
        0: "0-1,8-9",
        1: "2-3,10-11",
        2: "4-5,12-13",
        3: "6-7,14-15",
    }
    assert {socket: format_id_list(cpus) for socket, cpus in machine.cpus_of_socket.items()} == {
        0: "0-3,8-11",
        1: "4-7,12-15",
    }


def test_distances_tell_a_socket_from_the_rest_of_the_machine() -> None:
    machine = parse_shape("sockets:2 numa:2 cores:1").machine()
    assert [node.distances for node in machine.numa_nodes] == [
        (10, 12, 32, 32),
        (12, 10, 32, 32),
        (32, 32, 10, 12),
        (32, 32, 12, 10),
    ]


def test_l3_groups_split_the_cores_of_a_numa_node() -> None:
    machine = parse_shape("numa:2 cores:4 threads:2 l3:2").machine()
    assert [format_id_list(cpus) for cpus in machine.cpus_of_l3_cache.values()] == [
        "0-1,8-9",
        "2-3,10-11",
        "4-5,12-13",
        "6-7,14-15",
    ]


def test_devices_are_named_by_resource_numa_node_and_index() -> None:
    shape = parse_shape("sockets:2 cores:1 device:vendor.com/gpu@0=2,1=1 device:vendor.com/nic@1=1")
    assert [(device.id, device.numa_nodes) for device in shape.offered_devices()] == [
        ("gpu-0-0", (0,)),
        ("gpu-0-1", (0,)),
        ("gpu-1-0", (1,)),
        ("nic-1-0", (1,)),
    ]


def test_devices_of_claims_are_named_alike_and_apart_from_those_of_plugins() -> None:
    shape = parse_shape("sockets:2 cores:1 device:vendor.com/gpu@0=1 dra:vendor.com/nic@0=1,1=2")
    assert [device.id for device in shape.offered_devices()] == ["gpu-0-0"]
    assert [(device.resource, device.id, device.numa_nodes) for device in shape.claimable_devices()] == [
        ("vendor.com/nic", "nic-0-0", (0,)),
        ("vendor.com/nic", "nic-1-0", (1,)),
        ("vendor.com/nic", "nic-1-1", (1,)),
    ]


def test_memory_and_huge_pages_are_per_numa_node() -> None:
    nodes = parse_shape("sockets:2 cores:1 memory:64Gi hugepages-1Gi:4 hugepages-2Mi:8").machine().numa_nodes
    assert [(node.memory, [(pool.resource, pool.count) for pool in node.hugepages]) for node in nodes] == [
        (64 << 30, [("hugepages-2Mi", 8), ("hugepages-1Gi", 4)])
    ] * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("numa", "KEY:VALUE"),
        ("numa:0", "at least 1"),
        ("numa:x", "whole number"),
        ("numa:2 numa:2", "given twice"),
        ("nodes:2", "unknown; a shape has sockets"),
        ("cores:2 l3:3", "more than the 2 cores"),
        ("memory:1Gi hugepages-1Gi:2", "larger than the memory"),
        ("memory:x", "not a quantity"),
        ("memory:0", "above 0"),
        ("device:gpu@0=1", "DOMAIN/NAME"),
        ("device:a/b@2=1", "last one is 0"),
        ("device:a/b@0=1 device:a/b@0=1", "given twice"),
        ("dra:gpu@0=1", "is not dra:DOMAIN/NAME"),
        ("dra:a/b@2=1", "last one is 0"),
        ("dra:a/b@0=1 device:a/b@0=1", "given twice"),
        ("sockets:65", "supports at most 64"),
        ("cores:9999", "at most 4096"),
    ],
)
def test_a_wrong_shape_is_refused_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(InvalidShape, match=words):
        parse_shape(text)
