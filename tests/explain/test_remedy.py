"""What would have a refused pod admitted. Whatever is named is true by replay."""

from dataclasses import replace

from tests.builders import TWO_NUMA_NODES, node_state, pod, running

from topomend.explain.nearest.nearest_amounts import NearestAmount
from topomend.explain.remedy import MAX_ENDS, Remedy, changed_pod, remedy_of
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit, is_admitted, release

GIB = 1 << 30

PINNED = node_state(
    "sockets:2 cores:8 memory:93Gi", "restricted", memory_manager="Static", pods=[pod("large", "cpu=200m memory=95Gi")]
)
"""One pod's memory is pinned on both NUMA nodes together, so that neither serves another pod."""


def remedies(state: NodeState, asked: Pod) -> Remedy:
    verdict, _ = admit(state, asked)
    return remedy_of(state, asked, verdict)


def test_the_nearest_amount_is_named_with_its_unit() -> None:
    remedy = remedies(node_state(), pod("p", "cpu=5 memory=1Gi"))
    assert remedy.words == "would be admitted with 4 CPUs"
    assert remedy.amounts == (NearestAmount("c0", "cpu", 5, 4),)


def test_one_cpu_and_one_of_several_containers_are_named_as_such() -> None:
    state = node_state(pods=[pod("q", "cpu=3 memory=1Gi"), pod("r", "cpu=3 memory=1Gi")])
    assert remedies(state, pod("p", "cpu=2 memory=1Gi")).words.startswith("would be admitted with 1 CPU or once ")
    assert (
        "with 4 CPUs in container c1" in remedies(node_state(), pod("p", "cpu=1 memory=1Gi", "cpu=5 memory=1Gi")).words
    )


def test_more_of_a_resource_is_named_with_how_many_numa_nodes_it_spans() -> None:
    state = node_state("sockets:2 numa:4 cores:8 threads:2 memory:64Gi", "restricted", memory_manager="Static")
    words = remedies(state, pod("p", "cpu=24 memory=20Gi")).words
    assert "with 16 CPUs or with " in words
    assert "of memory, which spans the same 2 NUMA nodes" in words


def test_a_manager_that_pins_nothing_helps_where_memory_alone_refuses() -> None:
    asked = pod("p", "cpu=1 memory=1Gi")
    assert "with Memory Manager None" in remedies(PINNED, asked).words
    assert is_admitted(replace(PINNED, kubelet=replace(PINNED.kubelet, memory_manager_policy="None")), asked)
    without = node_state(pods=[pod("q", "cpu=3 memory=1Gi")])
    assert "Memory Manager" not in remedies(without, pod("p", "cpu=5 memory=1Gi")).words


def test_the_pod_whose_end_helps_is_named() -> None:
    asked = pod("p", "cpu=1 memory=1Gi")
    assert "once ns/large ends" in remedies(PINNED, asked).words
    running(release(PINNED, "ns", "large"), asked)


def test_the_pod_whose_end_helps_is_named_where_the_end_of_all_would_not() -> None:
    """Beside nobody the first container gets the CPUs of the NUMA node whose GPU the second one asks for."""
    node = node_state("sockets:2 cores:8 memory:8Gi device:vendor.com/gpu@0=1")
    asked = pod("p", "cpu=5 memory=1Mi", "cpu=3 memory=1Mi vendor.com/gpu=1")
    assert not is_admitted(node, asked)
    full = running(node, pod("small", "cpu=3 memory=1Mi"), pod("large", "cpu=4 memory=1Mi"))
    assert "once ns/large ends" in remedies(full, asked).words
    running(release(full, "ns", "large"), asked)


def test_the_largest_pods_are_tried_first_and_no_more_than_a_few() -> None:
    def crowded(holder: int) -> NodeState:
        """So many pods of two CPUs on NUMA node 0; only the end of the one on NUMA node 1 frees a device."""
        state = node_state("sockets:2 cores:16 memory:64Gi device:v.com/gpu@1=1")
        return running(
            state,
            *(pod(f"on-0-{number}", "cpu=2 memory=1Gi") for number in range(holder)),
            pod("gpu", "cpu=1 memory=1Gi v.com/gpu=1"),
        )

    asked = pod("p", "cpu=1 memory=1Gi v.com/gpu=1")
    assert "once ns/gpu ends" in remedies(crowded(MAX_ENDS - 1), asked).words
    assert "once" not in remedies(crowded(MAX_ENDS), asked).words


def test_no_end_is_named_where_not_even_the_empty_node_admits_the_pod() -> None:
    state = node_state(pods=[pod("q", "cpu=3 memory=1Gi")])
    assert "once" not in remedies(state, pod("p", "cpu=5 memory=1Gi")).words


def test_where_no_single_change_helps_nothing_is_said() -> None:
    state = node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@0=1")
    remedy = remedies(state, pod("p", "cpu=5 memory=1Gi v.com/gpu=2"))
    assert (remedy.amounts, remedy.words) == ((), "")


def test_a_changed_pod_differs_in_that_amount_alone() -> None:
    asked = pod("p", "cpu=5 memory=1Gi", "cpu=5 memory=2Gi")
    changed = changed_pod(asked, NearestAmount("c1", "memory", 2 * GIB, GIB))
    assert changed == pod("p", "cpu=5 memory=1Gi", "cpu=5 memory=1Gi")
    assert changed_pod(changed, NearestAmount("c1", "memory", GIB, 2 * GIB)) == asked
