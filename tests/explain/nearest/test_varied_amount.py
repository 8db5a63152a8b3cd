"""Which amounts of a pod are varied, in which steps and between which bounds."""

from tests.builders import node_state, pod

from topomend.explain.nearest.varied_amount import VariedAmount, varied_amounts
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay import qos
from topomend.replay.container_manager import ContainerManager, start

GIB, MIB = 1 << 30, 1 << 20
TWO = "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=2,1=2"


def amounts_of(state: NodeState, asked: Pod) -> list[VariedAmount]:
    kubelet = start(state.machine, state.kubelet)
    assert isinstance(kubelet, ContainerManager)
    return list(varied_amounts(state, kubelet, asked))


def varied(state: NodeState, *containers: str) -> list[tuple[str, str, int, int]]:
    amounts = amounts_of(state, pod("p", *containers))
    return [(amount.container, amount.resource, amount.asked, amount.step) for amount in amounts]


def test_each_resource_of_each_container_changes_in_steps_of_its_own() -> None:
    assert varied(
        node_state(TWO, memory_manager="Static"), "cpu=3 memory=1Gi", "cpu=1 memory=1Gi vendor.com/gpu=2"
    ) == [
        ("c0", "cpu", 3, 1),
        ("c0", "memory", GIB, 64 * MIB),
        ("c1", "cpu", 1, 1),
        ("c1", "memory", GIB, 64 * MIB),
        ("c1", "vendor.com/gpu", 2, 1),
    ]


def test_huge_pages_change_by_the_page_that_their_name_says() -> None:
    state = node_state(TWO, memory_manager="Static")
    steps = {name: step for _, name, _, step in varied(state, "cpu=1 memory=1Gi hugepages-2Mi=64Mi hugepages-1Gi=2Gi")}
    assert (steps["hugepages-2Mi"], steps["hugepages-1Gi"]) == (2 * MIB, GIB)


def test_what_no_manager_gives_is_not_varied() -> None:
    assert varied(node_state(TWO), "cpu=500m memory=1Gi vendor.com/gpu=1") == [("c0", "vendor.com/gpu", 1, 1)]
    assert varied(node_state(TWO, memory_manager="Static"), "request:cpu=3 vendor.com/gpu=1") == [
        ("c0", "vendor.com/gpu", 1, 1)
    ]


def test_amounts_lie_between_one_step_and_all_that_the_machine_has() -> None:
    amounts = amounts_of(node_state(TWO, memory_manager="Static"), pod("p", "cpu=3 memory=1Gi vendor.com/gpu=2"))
    bounds = {amount.resource: (amount.at(amount.first), amount.at(amount.last)) for amount in amounts}
    assert bounds == {"cpu": (1, 8), "memory": (64 * MIB, 15 * GIB + 512 * MIB), "vendor.com/gpu": (1, 4)}


def test_request_and_limit_change_together() -> None:
    state, asked = node_state(TWO), pod("p", "cpu=3 memory=1Gi", "cpu=1 memory=1Gi")
    cpus = amounts_of(state, asked)[1]
    changed = cpus.put_into(asked, 2000)
    resources = changed.containers[1].resources
    assert (resources.requests["cpu"], resources.limits["cpu"]) == (2000, 2000)
    assert changed.containers[0] == asked.containers[0]
    kubelet = start(state.machine, state.kubelet)
    assert isinstance(kubelet, ContainerManager)
    assert qos.is_guaranteed(changed, kubelet.gates)
