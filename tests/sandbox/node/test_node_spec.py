"""A node that no kubelet would start on is refused before anything starts."""

import pytest

from topomend.model.bitmask import mask_of
from topomend.model.machine import Machine, NUMANode
from topomend.model.nodes.kubelet import MemoryReservation
from topomend.sandbox.cluster import check_nodes
from topomend.sandbox.node.node_spec import InvalidNodeSpec, NodeSpec, fingerprint

SHAPE = "sockets:1 numa:2 cores:2 memory:4Gi"


def test_both_managers_are_static_and_reserve_what_they_need_unless_told() -> None:
    kubelet = NodeSpec.of_shape("a", SHAPE).kubelet
    assert (kubelet.cpu_manager_policy, kubelet.memory_manager_policy) == ("static", "Static")
    assert kubelet.reserved_cpus == mask_of([0])
    assert kubelet.reserved_memory == (MemoryReservation(0, "memory", 100 << 20),)


def test_managers_that_are_off_reserve_nothing() -> None:
    kubelet = NodeSpec.of_shape("a", SHAPE, cpu_manager_policy="none", memory_manager_policy="None").kubelet
    assert kubelet.reserved_cpus is None
    assert kubelet.reserved_memory == ()


def test_memory_is_reserved_on_the_first_numa_node_that_has_any() -> None:
    cores = NodeSpec.of_shape("a", SHAPE).machine.cores
    machine = Machine((NUMANode(0, 0), NUMANode(1, 64 << 20)), cores)
    assert NodeSpec.of_machine("a", machine).kubelet.reserved_memory == (MemoryReservation(1, "memory", 32 << 20),)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reserved_cpus": mask_of([4])}, "not among"),
        ({"reserved_cpus": mask_of(range(4))}, "every CPU"),
        ({"reserved_memory": (MemoryReservation(0, "hugepages-2Mi", 1),)}, "cannot reserve hugepages-2Mi"),
        ({"reserved_memory": (MemoryReservation(0, "memory", 5 << 30),)}, "NUMA node 0"),
        ({"reserved_memory": (MemoryReservation(2, "memory", 1),)}, "NUMA node 2"),
    ],
)
def test_what_the_kubelet_would_refuse_is_refused_with_the_nodes_name(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidNodeSpec, match=f"node a: .*{words}"):
        NodeSpec.of_shape("a", SHAPE, **settings)


@pytest.mark.parametrize(
    ("word", "settings", "words"),
    [
        ("dra:vendor.com/gpu@0=1", {"version": "v1.33.5"}, "knows no claims by default; dra needs v1.34"),
        ("dra:vendor.com/GPU@0=1", {}, "lower-case"),
        (f"dra:{'v' * 60}.com/gpu@0=1", {}, "at most 63"),
        ("dra:vendor.com/gpu@0=100,1=29", {}, "129 devices vendor.com/gpu by claim; a ResourceSlice has at most 128"),
    ],
)
def test_devices_of_claims_that_no_driver_could_publish_are_refused(
    word: str, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidNodeSpec, match=f"node a: .*{words}"):
        NodeSpec.of_shape("a", f"{SHAPE} {word}", **settings)


@pytest.mark.parametrize("name", ["", "A", "a_b", "../x", "a" * 64, "-a"])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidNodeSpec, match="node name"):
        NodeSpec.of_shape(name, SHAPE)


def test_the_fingerprint_tells_apart_what_differs_and_nothing_else() -> None:
    first = NodeSpec.of_shape("a", SHAPE)
    assert fingerprint(first) == fingerprint(NodeSpec.of_shape("a", SHAPE))
    others = [
        NodeSpec.of_shape("b", SHAPE),
        NodeSpec.of_shape("a", SHAPE + " threads:2"),
        NodeSpec.of_shape("a", SHAPE, topology_manager_scope="pod"),
        NodeSpec.of_shape("a", SHAPE + " device:a.com/b@0=1"),
        NodeSpec.of_shape("a", SHAPE + " dra:a.com/b@0=1"),
    ]
    assert len({fingerprint(spec) for spec in (first, *others)}) == 6


@pytest.mark.parametrize(("kubelet", "api_server"), [("v1.36.3", "v1.36.3"), ("v1.33.5", "v1.36.3")])
def test_a_kubelet_may_be_three_minor_versions_older_than_its_api_server(kubelet: str, api_server: str) -> None:
    check_nodes([NodeSpec.of_shape("n", "numa:2 cores:2", version=kubelet)], api_server)


@pytest.mark.parametrize(("kubelet", "api_server"), [("v1.32.5", "v1.36.3"), ("v1.37.1", "v1.36.3")])
def test_a_kubelet_of_any_other_version_is_refused(kubelet: str, api_server: str) -> None:
    with pytest.raises(InvalidNodeSpec, match=f"node n: a kubelet {kubelet} does not work with an API server"):
        check_nodes([NodeSpec.of_shape("n", "numa:2 cores:2", version=kubelet)], api_server)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"topology_manager_policy": "restricted"}, "at most 8 NUMA nodes, and the machine has 34; set the option"),
        ({}, "all sets of the machine's 34 NUMA nodes, .* choose None"),
    ],
)
def test_a_kubelet_that_would_not_serve_so_many_numa_nodes_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidNodeSpec, match=words):
        NodeSpec.of_shape("a", "GB200", **settings)


def test_many_numa_nodes_are_served_with_the_option_and_without_a_memory_manager() -> None:
    options = {"max-allowable-numa-nodes": "34"}
    spec = NodeSpec.of_shape(
        "a",
        "GB200",
        topology_manager_policy="restricted",
        topology_manager_policy_options=options,
        memory_manager_policy="None",
    )
    assert len(spec.machine.numa_nodes) == 34


def test_the_first_cpu_that_is_online_is_reserved() -> None:
    assert NodeSpec.of_shape("a", "cores:4 offline:0-1").kubelet.reserved_cpus == 4
