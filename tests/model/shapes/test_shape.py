import pytest

from topomend.model.bitmask import format_id_list
from topomend.model.shapes.shape import InvalidShape, parse_shape


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


def test_an_l3_cache_may_serve_a_whole_socket() -> None:
    machine = parse_shape("sockets:2 numa:2 cores:2 l3:socket").machine()
    assert [format_id_list(cpus) for cpus in machine.cpus_of_l3_cache.values()] == ["0-3", "4-7"]


def test_offline_cpus_leave_their_cores_and_caches() -> None:
    machine = parse_shape("sockets:2 cores:2 threads:2 offline:0,2,6 isolated:3").machine()
    assert [format_id_list(core.threads) for core in machine.cores] == ["1,5", "3,7", "4"]
    assert (format_id_list(machine.offline), format_id_list(machine.isolated)) == ("0,2,6", "3")


def test_each_numa_node_may_have_its_own_memory_and_some_no_cpus() -> None:
    machine = parse_shape("sockets:2 cores:1 memory:8Gi,0 hugepages-2Mi:4 cpuless:2x1Gi,0").machine()
    assert [node.memory >> 30 for node in machine.numa_nodes] == [8, 0, 1, 1, 0]
    assert [[pool.count for pool in node.hugepages] for node in machine.numa_nodes] == [[4], [], [0], [0], []]
    assert format_id_list(machine.memory_only) == "2-4"


def test_a_numa_node_without_cpus_is_far_from_all_others() -> None:
    machine = parse_shape("numa:2 cores:1 cpuless:1Gi distances:11,40").machine()
    assert [node.distances for node in machine.numa_nodes] == [(10, 11, 40), (11, 10, 40), (40, 40, 10)]


def test_all_distances_may_be_given() -> None:
    machine = parse_shape("sockets:2 cores:1 distances:10,21/31,10").machine()
    assert [node.distances for node in machine.numa_nodes] == [(10, 21), (31, 10)]


def test_words_after_a_name_replace_those_of_the_machine() -> None:
    shape = parse_shape("p4D.24xlarge memory:1Gi device:nvidia.com/gpu@1=1 device:a.com/b@0=1 hugepages-2Mi:1")
    assert shape.memory == (1 << 30,)
    assert shape.devices == (("nvidia.com/gpu", ((1, 1),)), ("a.com/b", ((0, 1),)))
    assert (shape.cores, shape.hugepages) == (24, ((2 << 20, 1),))


def test_a_distance_beyond_a_socket_replaces_all_rows_of_a_known_machine() -> None:
    assert parse_shape("c5n.18xlarge distances:11,40").machine().numa_nodes[0].distances == (10, 40)


def test_a_large_shape_takes_no_time_to_speak_of() -> None:
    assert len(parse_shape("sockets:8 cores:512").machine().cores) == 4096


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
        ("memory:0", "no NUMA node with CPUs has memory"),
        ("memory:-1", "above 0"),
        ("sockets:2 memory:1Gi,1Gi,1Gi", "3 amounts; give one for all 2"),
        ("sockets:2 memory:1Gi,64Gi hugepages-1Gi:2", "larger than the memory of a NUMA node, 1Gi"),
        ("memory:1Gi,,", "'memory:1Gi,,'"),
        ("cpuless:0x1Gi", "at least 1"),
        ("cpuless:99x1Gi", "100 NUMA nodes"),
        ("numbering:odd", "is not interleaved or adjacent"),
        ("offline:a", "a list of CPUs is 3,8-11"),
        ("offline:0", "leave one online"),
        ("cores:2 offline:7", "offline has CPUs 7; the machine has 0-1"),
        ("isolated:9", "isolated has CPUs 9"),
        ("distances:10", "neither NEAR,FAR nor a row"),
        ("distances:9,300", "distance 9 is outside 10 to 255"),
        ("sockets:2 distances:10,20/20", "row 1 of distances has 1 numbers"),
        ("sockets:2 distances:10,20/20,11", "row 1 of distances has 11 at its own place"),
        ("sockets:3 distances:10,20/20,10", "2 rows; the machine has 3"),
        ("p5.48xlarge p4d.24xlarge", "is not KEY:VALUE"),
        ("nosuch numa:2", "neither KEY:VALUE, such as numa:2, nor one of"),
        ("device:gpu@0=1", "DOMAIN/NAME"),
        ("device:a/b@2=1", "last one is 0"),
        ("device:a/b@0=1 device:a/b@0=1", "given twice"),
        ("dra:gpu@0=1", "is not dra:DOMAIN/NAME"),
        ("dra:a/b@2=1", "last one is 0"),
        ("dra:a/b@0=1 device:a/b@0=1", "given twice"),
        ("sockets:65", "supports at most 64"),
        ("cores:9999", "at most 4096"),
        ("cores:99999999", "'cores:99999999' has a number of more than 7 digits; a shape has at most 4096 CPUs"),
        (f"cores:{'9' * 5000}", "has a number of more than 7 digits"),
        ("cores:00000000", "needs a whole number of at least 1"),
    ],
)
def test_a_wrong_shape_is_refused_with_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(InvalidShape, match=words):
        parse_shape(text)
