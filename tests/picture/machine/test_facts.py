"""Who holds each CPU and device of a node, and how that looks."""

from dataclasses import replace

from tests.builders import guaranteed_pod, node_state, pod_allocation

from topomend.model.nodes.node_state import Device, NodeState
from topomend.picture.holders import RESERVED
from topomend.picture.machine.facts import FREE, SEVERAL, Facts, Subject

GPUS = "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1,1=1"


def facts(state: NodeState) -> Facts:
    return Facts(Subject(state))


def test_a_cpu_is_free_reserved_held_or_shared_by_several() -> None:
    state = replace(node_state(), pods=(pod_allocation("x", "1-2"), pod_allocation("y", "2"), pod_allocation("z", "0")))
    looks = [facts(state).of_cpu(cpu) for cpu in range(4)]
    assert [look.mark for look in looks] == [RESERVED, "a", SEVERAL, ""]
    assert looks[2].words == "shared by ns/x c0, ns/y c0"
    assert looks[3] is FREE


def test_holders_differ_in_colour_until_there_are_more_of_them_than_colours() -> None:
    pods = tuple(pod_allocation(f"p{number}", str(number + 1)) for number in range(9))
    state = replace(node_state("cores:16 memory:8Gi"), pods=pods)
    classes = [facts(state).of_cpu(cpu).css for cpu in range(1, 10)]
    assert classes == ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h0"]


def test_those_who_have_to_go_are_marked() -> None:
    subject = Subject(node_state(pods=[guaranteed_pod("x", 1), guaranteed_pod("y", 1)]), going={("ns", "y")})
    assert [Facts(subject).of_cpu(cpu).css for cpu in (1, 2)] == ["h0", "h1 goes"]


def test_devices_are_at_their_one_numa_node_or_at_none() -> None:
    state = node_state(GPUS, pods=[guaranteed_pod("x", 1, gpu=1)])
    state = replace(
        state, devices=(*state.devices, Device("v.com/nic", "both", (0, 1)), Device("v.com/nic", "far", (9,)))
    )
    known = facts(state)
    places = (0, 1, None)
    assert [[device.id for device in known.devices_at(place)] for place in places] == [
        ["gpu-0-0"],
        ["gpu-1-0"],
        ["both", "far"],
    ]
    assert [known.of_device(device).mark for device in state.devices] == ["a", "", "", ""]


def test_the_node_is_told_in_a_sentence() -> None:
    known = facts(node_state(pods=[guaranteed_pod("x", 2)]))
    assert known.size_words == "2 packages, 2 NUMA nodes, 8 cores, 8 CPUs"
    assert known.description == (
        "Node a: 2 packages, 2 NUMA nodes, 8 cores, 8 CPUs; 5 CPUs are free; 1 container with exclusive resources. "
        "The tables say the same."
    )
