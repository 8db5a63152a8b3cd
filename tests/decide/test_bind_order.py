from functools import reduce

import pytest
from tests.decide.test_queue_order import SETTINGS, asking, one_hole, waiting

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Publication
from topomend.decide import bind_order
from topomend.decide import plan as plans
from topomend.decide.bind_order import MAX_INTERLEAVED, MAX_PERMUTED, admitted_in_any_order
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.model.shape import parse_shape
from topomend.replay.admission import admit, release

EMPTY = NodeState("a", parse_shape("numa:2 cores:6").machine(), SETTINGS)
"""Five CPUs free on NUMA 0, six on NUMA 1."""


def in_any_order(state: NodeState, assumed_pods: list[Pod], pod: Pod, *ended: str) -> bool:
    return admitted_in_any_order(
        Publication(state, "1", {("ns", name): 1.0 for name in ended}, tuple(assumed_pods)), pod
    )


def test_a_pod_that_would_take_the_place_of_one_that_is_on_its_way_if_it_came_first_is_found_out() -> None:
    assert in_any_order(EMPTY, [asking(5, "wide")], asking(5, "wide too"))
    assert in_any_order(EMPTY, [asking(6, "wide")], asking(1, "small"))
    state = admit(admit(EMPTY, asking(5, "low"))[1], asking(3, "high"))[1]
    state = release(state, "ns", "low")  # five free on NUMA 0, three on NUMA 1
    assert admit(admit(state, asking(5, "wide"))[1], asking(3, "small"))[0].admitted
    assert not in_any_order(state, [asking(5, "wide")], asking(3, "small"))


def test_nobody_is_asked_twice_where_one_numa_node_has_room_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bind_order, "admit", lambda *_: pytest.fail("tried"))
    assert in_any_order(EMPTY, [], asking(6, "alone"))
    assert in_any_order(EMPTY, [asking(1, f"p{number}") for number in range(5)], asking(1, "last"))


def test_a_pod_that_was_on_its_way_may_have_been_placed_before_another_one_ended_or_after_that() -> None:
    state = admit(EMPTY, asking(5, "low"))[1]
    after_the_end = admit(release(state, "ns", "low"), asking(1, "small"))[1]
    assert admit(after_the_end, asking(6, "wide"))[0].admitted
    assert not in_any_order(state, [asking(1, "small")], asking(6, "wide"), "low")
    assert in_any_order(state, [asking(1, "small")], asking(5, "wide"), "low")


def test_a_pod_that_had_no_room_before_another_one_ended_came_after_that() -> None:
    state = admit(admit(EMPTY, asking(5, "low"))[1], asking(6, "high"))[1]
    assert in_any_order(state, [asking(1, "small")], asking(6, "wide"), "low", "high")


def test_a_pod_that_was_on_its_way_may_have_been_placed_between_the_ends_of_two_others() -> None:
    """As seen in virtual time: 6 CPUs were free on NUMA 1, five came there, and then five ended on NUMA 0."""
    state = admit(admit(EMPTY, asking(5, "low"))[1], asking(5, "high"))[1]
    before, after = release(state, "ns", "high"), release(release(state, "ns", "high"), "ns", "low")
    assert not admit(state, asking(5, "wide"))[0].admitted
    assert not admit(release(admit(before, asking(5, "wide"))[1], "ns", "low"), asking(6, "wider"))[0].admitted
    assert admit(admit(after, asking(5, "wide"))[1], asking(6, "wider"))[0].admitted
    assert not in_any_order(state, [asking(5, "wide")], asking(6, "wider"), "high", "low")
    assert in_any_order(state, [asking(5, "wide")], asking(6, "wider"), "low", "high")


def test_where_too_many_have_ended_to_tell_who_came_before_whom_it_is_waited_for() -> None:
    names = [f"p{number}" for number in range(MAX_INTERLEAVED - 1)]
    one = admit(EMPTY, asking(1, names[0]))[1]
    many = reduce(lambda state, name: admit(state, asking(1, name))[1], names, EMPTY)
    assert in_any_order(one, [asking(5, "wide")], asking(5, "wide too"), *names[:1])
    assert not in_any_order(many, [asking(5, "wide")], asking(5, "wide too"), *names)
    assert in_any_order(many, [asking(1, "small")], asking(4, "not so wide"), *names)


def test_of_many_pods_the_largest_is_tried_last() -> None:
    small = [asking(1, f"p{number}") for number in range(MAX_PERMUTED)]
    assert in_any_order(EMPTY, [asking(6, "wide")], asking(1, "p"))
    crowded = admit(EMPTY, asking(4, "there"))[1]
    assert admit(crowded, asking(6, "wide"))[0].admitted
    assert not in_any_order(crowded, [asking(6, "wide"), *small[:-1]], small[-1])


def test_a_pod_is_ungated_beside_an_assumed_one_only_if_their_order_does_not_matter() -> None:
    snapshot = one_hole(waiting("small", 1, 2))
    small = snapshot.gated[("ns", "small")]
    empty = NodeState("a", snapshot.publications["a"].state.machine, SETTINGS)
    one_free_on_numa_1 = release(admit(admit(empty, asking(3, "low"))[1], asking(3, "high"))[1], "ns", "low")
    snapshot = apply(snapshot, changes.Published(one_free_on_numa_1, "9"))
    snapshot = apply(snapshot, changes.PodAssumed(asking(3, "wide"), ("a",), 1.0))
    waits = plans.choose_in_order(snapshot, small, 2.0)
    assert isinstance(waits, plans.Wait)
    assert waits.reason == "a NUMA 1 admits it once the pods assumed there have arrived"
    snapshot = apply(snapshot, changes.Published(admit(one_free_on_numa_1, asking(3, "wide"))[1], "10"))
    assert isinstance(plans.choose_in_order(snapshot, small, 2.0), plans.RelaunchOn)
