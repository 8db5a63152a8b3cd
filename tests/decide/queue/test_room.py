"""The fewest pods whose end makes room for a pod."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.builders import applied, node, node_state, pod, running, snapshot_of
from verify.room.clusters import ANY_NODE

from topomend.cache import changes
from topomend.decide.budgets import Budget
from topomend.decide.queue import room
from topomend.decide.queue.room import Occupant, Occupied, Room, Tries, candidates, make_room, room_on
from topomend.model.pods.pod import usage_of
from topomend.replay.admission import is_admitted

LARGE = pod("large", "cpu=4 memory=1Mi")
NODES = {"a": "first", "b": "second"}
"""Of four CPUs that are free on one NUMA node, the pod on each takes all."""


def occupant(name: str, cpus: int, **fields: object) -> Occupant:
    own = pod(name, f"cpu={cpus} memory=1Mi")
    made = Occupant(own.namespace, name, own.uid, 0, usage_of(own), "ReplicaSet/r")
    return replace(made, **fields)  # type: ignore[arg-type]


def room_beside(*occupants: Occupant, budgets: Sequence[Budget] = ()) -> Room | None:
    """The answer for a pod of four CPUs on a node of two NUMA nodes, four CPUs each, of which one is reserved."""
    pods = (pod(other.name, f"cpu={other.usage['cpu'] // 1000} memory=1Mi") for other in occupants)
    return make_room(snapshot_of(running(node_state(), *pods)), LARGE, ANY_NODE, Occupied({"a": occupants}, budgets))


def names(found: Room | None) -> list[str] | None:
    return None if found is None else sorted(other.name for other in found.pods)


ONE, TWO, THREE = occupant("one", 3), occupant("two", 2), occupant("three", 2)


def test_nobody_has_to_go_where_the_pod_fits() -> None:
    found = room_beside(occupant("one", 2))
    assert names(found) == []


def test_the_fewest_go_whatever_their_priority() -> None:
    assert names(room_beside(replace(ONE, priority=5), replace(TWO, priority=-5), replace(THREE, priority=-5))) == [
        "three",
        "two",
    ]
    assert names(room_beside(ONE, occupant("two", 4, priority=5))) == ["two"]


def test_a_pod_that_stays_is_never_named() -> None:
    assert names(room_beside(ONE, replace(TWO, stays="its DaemonSet"), THREE)) is None


def test_a_pod_that_is_leaving_is_waited_for_and_not_counted() -> None:
    found = room_beside(ONE, replace(TWO, leaving=True), THREE)
    assert names(found) == ["three"]
    assert found is not None
    assert [other.name for other in found.leaving] == ["two"]


@pytest.mark.parametrize(("allowed", "expected"), [(-1, None), (0, None), (1, None), (2, ["three", "two"])])
def test_a_budget_forbids_more_than_it_allows(allowed: int, expected: list[str] | None) -> None:
    budget = Budget(frozenset({TWO.uid, THREE.uid}), allowed)
    assert names(room_beside(ONE, TWO, THREE, budgets=[budget])) == expected


@pytest.mark.parametrize("worse", [{"priority": 1}, {"owner": ""}], ids=["more important", "lost for ever"])
@pytest.mark.parametrize("kept", ["first", "second"])
def test_of_as_few_the_less_important_go_and_then_those_that_somebody_creates_again(
    kept: str, worse: dict[str, object]
) -> None:
    states = [running(node_state(name=node), pod(name, "cpu=4 memory=1Mi")) for node, name in NODES.items()]
    by_node = {node: [occupant(name, 4, **(worse if name == kept else {}))] for node, name in NODES.items()}
    found = make_room(snapshot_of(*states), LARGE, ANY_NODE, Occupied(by_node))
    assert names(found) == [name for name in NODES.values() if name != kept]


def test_a_node_that_is_not_asked_about_is_none() -> None:
    states = [running(node_state(name=node), pod(name, "cpu=4 memory=1Mi")) for node, name in NODES.items()]
    by_node = {node: [occupant(name, 4)] for node, name in NODES.items()}
    found = make_room(snapshot_of(*states), LARGE, ANY_NODE, Occupied(by_node), ["b"])
    assert found is not None
    assert found.node == "b"


def test_a_search_that_is_too_long_names_a_set_that_cannot_do_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_TRIES", 1)
    found = room_beside(ONE, TWO, THREE)
    assert found is not None
    assert not found.is_fewest
    assert names(found) == ["three", "two"]


PAIR = pod("pair", "cpu=5 memory=1Mi", "cpu=3 memory=1Mi vendor.com/gpu=1")
"""Alone on a node whose GPU is on NUMA node 0, its first container gets the CPUs there that its second one needs."""


def test_a_pod_that_an_empty_node_refuses_gets_room_where_another_pod_stays() -> None:
    others = occupant("three", 3), occupant("four", 4)
    empty = node_state("sockets:2 cores:8 memory:8Gi device:vendor.com/gpu@0=1")
    full = running(empty, *(pod(each.name, f"cpu={each.usage['cpu'] // 1000} memory=1Mi") for each in others))
    assert not is_admitted(empty, PAIR)
    assert not is_admitted(full, PAIR)
    described = node(cpus=15)
    described = replace(described, allocatable={**described.allocatable, "vendor.com/gpu": 1000})
    snapshot = applied(changes.NodeUpdated(described), to=snapshot_of(full))
    assert names(make_room(snapshot, PAIR, ANY_NODE, Occupied({"a": others}))) == ["four"]


def test_that_nothing_was_found_says_nothing_where_not_all_could_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Occupied({"a": (ONE, replace(TWO, stays="its DaemonSet"), THREE)})
    full = running(
        node_state(), pod("one", "cpu=3 memory=1Mi"), *(pod(name, "cpu=2 memory=1Mi") for name in ("two", "three"))
    )
    among, enough = candidates(snapshot_of(full), LARGE, ANY_NODE), Tries()
    assert room_on(among, LARGE, others, enough) is None
    assert enough.were_enough
    monkeypatch.setattr(room, "MOST_TRIES", 0)
    too_few = Tries()
    assert room_on(among, LARGE, others, too_few) is None
    assert not too_few.were_enough
