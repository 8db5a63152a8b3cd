"""The next pod of a moved one is kept from nodes, and its place held; no other pod is concerned."""

from dataclasses import replace

from tests.builders import gated_pod, guaranteed_pod, watched_pod

from topomend.decide.defragment.moves import Movable, Move, Place
from topomend.model.pods.scheduling import Owner, Placement, WatchedPod
from topomend.reconcile.placement.move_under_way import MoveUnderWay, UnderWay, stand_in_of

OWNER = Owner("ReplicaSet", "half", "uid-of-half", "apps/v1")
MOVED = watched_pod("half-1", 2, owner=OWNER, node="a")
MOVE = Move(
    Movable(guaranteed_pod("half-1", 2), Placement(), "a"), "none", Place("a", 1), Place("b", 1), 1.0, 0.5, ("a", "c")
)


def held(moved: WatchedPod = MOVED) -> MoveUnderWay:
    """The place is held, and nobody is evicted yet."""
    made = MoveUnderWay()
    made.begin(UnderWay(MOVE, moved, stand_in_of(MOVE), 10.0, 20.0))
    return made


def under_way(moved: WatchedPod = MOVED) -> MoveUnderWay:
    made = held(moved)
    assert made.evict(())
    return made


def next_pod(name: str = "half-2", owner: Owner | None = OWNER) -> WatchedPod:
    return gated_pod(name, 2, owner=owner)


def test_the_next_pod_is_kept_from_the_nodes_that_the_proof_leaves_out() -> None:
    move = under_way()
    assert set(move.excluded(next_pod())) == {"a", "c"}
    assert all(not status.admits for status in move.excluded(next_pod()).values())
    stand_in = move.stand_in(next_pod())
    assert stand_in is not None
    assert stand_in.name == "half-1/moved"


def test_no_other_pod_is_concerned() -> None:
    move = under_way()
    others = (
        next_pod("other", replace(OWNER, uid="uid-of-another")),
        next_pod("bare", None),
        replace(next_pod("ungated"), gates=()),
        replace(next_pod("elsewhere"), namespace="other"),
        replace(next_pod("half-1"), uid=MOVED.uid),
    )
    for pod in others:
        assert not move.excluded(pod), pod.name
        assert move.stand_in(pod) is None, pod.name
    assert move.current
    assert move.current.next_pod is None


def test_the_first_new_pod_of_the_controller_is_the_next_one_and_a_later_one_only_if_that_is_gone() -> None:
    move = under_way()
    assert move.excluded(next_pod())
    assert not move.excluded(next_pod("half-3"))
    move.next_is_gone()
    assert move.excluded(next_pod("half-3"))


def test_a_pod_that_comes_before_the_eviction_does_not_get_the_place_and_nobody_is_evicted() -> None:
    move = held()
    assert move.stand_in(next_pod()) is None
    assert not move.excluded(next_pod())
    assert not move.evict(())


def test_nobody_is_evicted_while_another_pod_of_the_controller_waits_that_no_worker_has_met() -> None:
    assert not held().evict([next_pod()])
    strangers = (next_pod("other", replace(OWNER, uid="uid-of-another")), next_pod("bare", None))
    assert held().evict(strangers)
    assert not MoveUnderWay().evict(())


def test_the_next_pod_of_a_stateful_set_has_the_name_of_the_moved_one() -> None:
    """One that is scaled up while the moved pod ends may have a new one first (``podManagementPolicy: Parallel``)."""
    owner = Owner("StatefulSet", "half", "uid-of-half", "apps/v1")
    move = under_way(replace(MOVED, owner=owner))
    added, next_one = next_pod("half-2", owner), replace(next_pod("half-1", owner), uid="another")
    assert move.stand_in(added) is None
    assert not move.excluded(added)
    assert move.stand_in(next_one)
    assert move.excluded(next_one)


def test_once_let_go_the_next_pod_may_go_anywhere_and_after_the_end_nobody_is_concerned() -> None:
    move = under_way()
    move.let_go()
    assert not move.excluded(next_pod())
    move.end()
    assert move.stand_in(next_pod()) is None
    move.let_go()
    move.next_is_gone()
    assert move.current is None
