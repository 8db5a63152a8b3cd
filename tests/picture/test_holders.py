"""Who holds something, and by which mark it is known."""

from dataclasses import replace

from tests.builders import node_state, pod_allocation

from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.nodes.node_state import ContainerAllocation, MemoryBlock, NodeState, PodAllocation
from topomend.picture.holders import LETTERS, RESERVED, holders_of, mark_of


def state_of(*pods: PodAllocation) -> NodeState:
    return replace(node_state(), pods=pods)


def test_marks_are_letters_and_then_pairs_all_of_them_different() -> None:
    marks = [mark_of(number) for number in range(3000)]
    assert marks[:2] + marks[50:53] == ["a", "b", "Z", "aa", "ab"]
    assert len(set(marks)) == len(marks)
    assert RESERVED not in marks
    assert len(LETTERS) == 51


def test_containers_are_marked_in_the_order_of_the_pods_and_those_that_hold_nothing_are_not() -> None:
    idle = PodAllocation("ns", "idle", containers=(ContainerAllocation("c0"),))
    found = holders_of(state_of(idle, pod_allocation("x", "1"), pod_allocation("y", "2-3")))
    assert [(holder.mark, holder.name, holder.cpus) for holder in found] == [("a", "ns/x c0", 2), ("b", "ns/y c0", 12)]


def test_what_a_pod_holds_as_a_whole_has_a_mark_of_its_own() -> None:
    blocks = (MemoryBlock("memory", 1, 1 << 30),)
    whole = PodAllocation("ns", "p", containers=(ContainerAllocation("c0", cpus=0b10),), cpus=0b1110, memory=blocks)
    own, rest = holders_of(state_of(whole))
    assert (own.name, own.cpus) == ("ns/p c0", 0b10)
    assert (rest.name, rest.cpus, rest.memory) == ("ns/p (whole pod)", 0b1100, blocks)


def test_claims_come_to_their_container_or_after_all_others() -> None:
    claims = [
        ContainerClaim("ns", pod, "c0", "gpus", "gpu.example.com", "pool", devices)
        for pod, devices in (("side", ("g2",)), ("x", ("g0", "g1")), ("side", ("g3",)))
    ]
    first, second = holders_of(state_of(pod_allocation("x", "1")), claims)
    assert (first.name, {device for _, _, device in first.claimed}) == ("ns/x c0", {"g0", "g1"})
    assert (second.name, {device for _, _, device in second.claimed}) == ("ns/side c0", {"g2", "g3"})
