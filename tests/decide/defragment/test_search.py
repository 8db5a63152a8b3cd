"""Moves that have less of what is free be unusable: each is proven, and the first is the best that there is."""

from dataclasses import replace
from random import Random

import pytest
from tests.builders import node_state, pod
from tests.decide.defragment.by_force import ByForce, told
from tests.decide.defragment.random_cluster import (
    FOUR,
    TWO,
    RandomCluster,
    cluster,
    named,
    number_of,
    with_pod,
    without_pod,
)
from tests.seeds import cases

from topomend.cache.snapshot import Snapshot
from topomend.decide.budgets import Budget
from topomend.decide.defragment import search as module
from topomend.decide.defragment.moves import Defragmented, Limits, Movable, Move, Pods, Waiting
from topomend.decide.defragment.search import defragment
from topomend.decide.pools.typical_pods import kinds_of
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement, Toleration
from topomend.replay.effort import SURVEY_SECONDS, UNLIMITED, Effort, Shares, TurnOver

ALL = Limits(moves=10, threshold=0.001)


def halves(*names: str, whole: str = "") -> tuple[Snapshot, list[Movable]]:
    """On each node NUMA node 0 is full, and a pod that may be moved takes two of the four CPUs of NUMA node 1.

    On those of ``whole``, a letter each, nobody takes any there.
    """
    states, held, movable = [], {}, []
    for name in (*names, *whole):
        mine = [pod(f"low-{name}", "cpu=3 memory=1Mi")]
        if name in names:
            mine.append(pod(f"half-{name}", TWO))
            movable.append(Movable(mine[1], Placement(), name, "ReplicaSet/half"))
        states.append(node_state(name=name, pods=mine))
        held[name] = mine
    return cluster(*states, held=held), movable


def moved(snapshot: Snapshot, pods: Pods, *typical: Pod, limits: Limits = ALL) -> Defragmented:
    return defragment(snapshot, lambda _: kinds_of(typical or [pod("four", FOUR)]), pods, limits)


def test_two_halves_become_a_whole() -> None:
    snapshot, movable = halves("a", "b")
    found = moved(snapshot, Pods(movable))
    [move] = found.moves
    assert (move.pod.pod.name, move.origin.node, move.target.node) == ("half-a", "a", "b")
    assert (move.origin.numa_nodes, move.target.numa_nodes) == (0b10, 0b10)
    assert (move.before, move.after) == pytest.approx((1, 0))
    [pool] = found.pools
    assert (pool.before, pool.after) == pytest.approx((1, 0))
    [(_, now, then)] = pool.typical
    assert (now, then) == (0, 1)


def test_the_room_that_a_move_makes_goes_to_a_pod_that_waits() -> None:
    snapshot, movable = halves("a", "b")
    waiting = Waiting(pod("want", FOUR))
    found = moved(snapshot, Pods(movable, [waiting]))
    [move] = found.moves
    [then] = move.then
    assert (then.pod.name, then.place.node, then.place.numa_nodes) == ("want", "a", 0b10)
    assert found.pools[0].after is None, "nothing is free any more"


def test_a_pod_that_waits_takes_the_room_of_one_move_alone() -> None:
    snapshot, movable = halves("a", "b", "c", "d")
    found = moved(snapshot, Pods(movable, [Waiting(pod("want", FOUR))]))
    assert [[then.pod.name for then in move.then] for move in found.moves] == [["want"], []]


def test_the_room_is_not_given_to_a_pod_that_the_scheduler_may_send_elsewhere() -> None:
    snapshot, movable = halves("a", "b")
    [move] = moved(snapshot, Pods(movable, [Waiting(pod("want", FOUR), certain=False)])).moves
    assert move.then == ()


def test_a_pod_that_would_come_back_to_its_node_is_not_moved() -> None:
    """Alone on its NUMA node, with a better place nowhere."""
    snapshot, movable = halves("a")
    assert moved(snapshot, Pods(movable)).moves == ()


def test_no_budget_is_overdrawn_by_all_moves_together() -> None:
    snapshot, movable = halves("a", "b", "c", "d")
    uids = frozenset(each.pod.uid for each in movable)
    assert len(moved(snapshot, Pods(movable)).moves) == 2
    assert len(moved(snapshot, Pods(movable, budgets=[Budget(uids, 1)])).moves) == 1
    assert moved(snapshot, Pods(movable, budgets=[Budget(uids, 0)])).moves == ()


def test_no_more_are_moved_than_asked_for_and_none_for_less_than_the_threshold() -> None:
    snapshot, movable = halves("a", "b", "c", "d")
    assert len(moved(snapshot, Pods(movable), limits=Limits(1, 0.0)).moves) == 1
    assert len(moved(snapshot, Pods(movable), limits=Limits(9, 1.99)).moves) == 2, "by half each, of four nodes"
    assert len(moved(snapshot, Pods(movable), limits=Limits(9, 2.0)).moves) == 2, "by exactly as much"
    found = moved(snapshot, Pods(movable), limits=Limits(9, 2.01))
    assert (found.moves, found.unproven) == ((), 0), "none is tried that brings too little"


def test_no_pod_goes_where_the_totals_are_used_up_or_not_known() -> None:
    snapshot, movable = halves("a", "b")
    for used in ({"cpu": 6000}, None):
        full = {name: replace(one, used=used) for name, one in snapshot.nodes.items()}
        assert moved(replace(snapshot, nodes=full), Pods(movable)).moves == ()


def test_no_pod_goes_from_or_to_a_node_on_which_pods_start_or_end() -> None:
    snapshot, movable = halves("a", "b")
    for name in "ab":
        assert moved(snapshot, Pods(movable, unsettled={name})).moves == ()


def test_where_nobody_needs_more_than_is_free_nothing_is_moved() -> None:
    snapshot, movable = halves("a", "b")
    assert moved(snapshot, Pods(movable), pod("two", TWO)).moves == ()


def test_a_pod_that_nothing_aligns_is_not_moved_for_the_scheduler_chooses_its_node() -> None:
    states = {name: node_state(name=name, policy="none", pods=[pod(f"half-{name}", TWO)]) for name in "ab"}
    held = {name: [pod(f"half-{name}", TWO)] for name in "ab"}
    movable = [Movable(held[name][0], Placement(), name) for name in "ab"]
    assert moved(cluster(*states.values(), held=held), Pods(movable)).moves == ()


def test_nodes_are_cordoned_on_which_the_pod_would_bring_nothing() -> None:
    """On c the four CPUs of NUMA node 1 are free, of which the scheduler could take two for the pod that leaves a."""
    snapshot, movable = halves("a", "b", whole="c")
    [move] = moved(snapshot, Pods(movable)).moves
    assert (move.target.node, move.cordoned, move.others) == ("b", ("a", "c"), ())


@pytest.mark.parametrize("whole", ["", "d"])
def test_a_pod_that_goes_to_cordoned_nodes_is_not_moved(whole: str) -> None:
    """Even where one more of its kind on its own node would have less be unusable, as beside the whole of d."""
    snapshot, movable = halves("a", "b", "c", whole=whole)
    anywhere = Placement(tolerations=(Toleration("", "Exists"),))
    tolerant = [replace(each, placement=anywhere) for each in movable]
    found = moved(snapshot, Pods(tolerant))
    assert (found.moves, found.unproven) == ((), 3)


def test_pods_are_moved_in_the_pools_that_were_named_alone() -> None:
    snapshot, movable = halves("a", "b", "c", "d")
    pool_of = {name: {"karpenter.sh/nodepool": "one" if name in "ab" else "two"} for name in "abcd"}
    nodes = {name: replace(one, labels={**one.labels, **pool_of[name]}) for name, one in snapshot.nodes.items()}
    kept = [replace(each, placement=Placement(pool_of[each.node])) for each in movable]
    four = kinds_of([pod("four", FOUR)])
    found = defragment(replace(snapshot, nodes=nodes), lambda _: four, Pods(kept), ALL, names=("two",))
    assert [move.origin.node for move in found.moves] == ["c"]
    assert [pool.name for pool in found.pools] == ["two"]


def test_no_pod_goes_where_room_may_be_kept_for_one_that_waits() -> None:
    """Once the pods on NUMA node 0 have ended, as they are expected to, ``want`` would be admitted there."""
    snapshot, movable = halves("a", "b")
    ending = {("ns", "low-a"), ("ns", "low-b")}
    want = Waiting(pod("want", "cpu=3 memory=1Mi"))
    four = Waiting(pod("want", FOUR))
    assert moved(snapshot, Pods(movable, [want], ending=ending)).moves == ()
    assert moved(snapshot, Pods(movable, [want])).moves, "they do not end by themselves"
    assert moved(snapshot, Pods(movable, [four], ending=ending)).moves, "it would not be admitted there"
    urgent = [replace(each, priority=1) for each in movable]
    assert moved(snapshot, Pods(urgent, [want], ending=ending)).moves, "they go before it"


def test_of_too_many_pods_those_of_the_most_fragmented_nodes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, movable = halves("a", "b")
    monkeypatch.setattr(module, "MOST_WORK", 1)
    assert (moved(snapshot, Pods(movable)).movable, moved(snapshot, Pods(movable)).asked) == (2, 1)
    several = pod("two", "cpu=2 memory=1Mi", "cpu=2 memory=1Mi")
    assert moved(snapshot, Pods(movable), several).asked == 0, "each takes several times the work"


def test_of_pods_of_too_many_kinds_the_first_kinds_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind takes the answers of all nodes, so that many kinds would be many times the work of as many pods."""
    snapshot, movable = halves("a", "b", "c")
    other = replace(movable[1], placement=Placement(node_selector={"kubernetes.io/hostname": "a"}))
    pods = Pods([movable[0], other, movable[2]])
    monkeypatch.setattr(module, "MOST_KINDS", 1)
    assert moved(snapshot, pods).asked == 2, "two are of one kind"
    monkeypatch.setattr(module, "MOST_KINDS", 2)
    assert moved(snapshot, pods).asked == 3
    monkeypatch.setattr(module, "ANSWERS_OF_WORK", 1)
    monkeypatch.setattr(module, "MOST_WORK", 6)
    assert moved(snapshot, pods).asked == 2, "three nodes answer about the first kind, and would about the other"


def test_pods_that_hold_nothing_or_are_on_nodes_that_do_not_count_are_not_looked_at() -> None:
    snapshot, movable = halves("a", "b")
    shared = Movable(pod("shared", "request:cpu=1"), Placement(), "a")
    found = moved(snapshot, Pods([*movable, shared]))
    assert (found.movable, found.asked) == (2, 2)
    cordoned = {**snapshot.nodes, "a": replace(snapshot.nodes["a"], unschedulable=True)}
    assert moved(replace(snapshot, nodes=cordoned), Pods(movable)).movable == 1


# Its share of time


class Ticking:
    """A clock that goes on by so many seconds each time that it is read."""

    def __init__(self, seconds: float) -> None:
        self.now, self._seconds = 0.0, seconds

    def __call__(self) -> float:
        self.now += self._seconds
        return self.now


NOBODY, TOO_LARGE, FITTING = (), ("cpu=4", FOUR), ("cpu=1", "cpu=1 memory=1Mi")
"""The containers of pods that wait."""


def large(waits: tuple[str, ...]) -> tuple[Snapshot, Pods]:
    """Two nodes of fourteen pods each that may be moved, and pods that wait, each of a kind of its own."""
    held = {name: [pod(f"{name}-{number}", TWO) for number in range(14)] for name in "ab"}
    states = [node_state("sockets:2 cores:16 memory:8Gi", name=name, pods=pods) for name, pods in held.items()]
    snapshot = cluster(*states, held=held)
    allocatable = {"cpu": 100_000, "memory": 1 << 60, "pods": 110_000}
    nodes = {name: replace(one, allocatable=allocatable) for name, one in snapshot.nodes.items()}
    movable = [Movable(each, Placement(), name) for name, pods in held.items() for each in pods]
    kinds = [(f"{waits[0]} memory={number}Mi", waits[1]) for number in range(1, 121)] if waits else []
    waiting = [Waiting(pod(f"w{number}", *kind)) for number, kind in enumerate(kinds)]
    return replace(snapshot, nodes=nodes), Pods(movable, waiting)


def searched(effort: Effort, waits: tuple[str, ...] = NOBODY) -> Defragmented:
    """Its typical pods take a whole admission each."""
    snapshot, pods = large(waits)
    typical = kinds_of(pod("t", f"cpu=4 memory={number}Mi", "cpu=1 memory=1Mi") for number in range(1, 4))
    return defragment(snapshot, lambda _: typical, pods, ALL, effort=effort)


@pytest.mark.parametrize("waits", [NOBODY, TOO_LARGE, FITTING], ids=["nobody", "too large", "fitting"])
def test_a_node_has_its_whole_share_of_time_for_each_pod_that_it_is_asked_about(waits: tuple[str, ...]) -> None:
    """Else a node of many pods would be set aside as if its agent published what takes replay too long."""
    found = searched(Shares(Ticking(0.005)), waits)
    assert found == searched(UNLIMITED, waits)
    assert found.moves


@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0])
def test_a_search_ends_soon_after_its_turn(seconds: float) -> None:
    clock = Ticking(0.005)
    with pytest.raises(TurnOver):
        searched(Shares(clock, seconds))
    assert clock.now < seconds + SURVEY_SECONDS


# Random clusters


def successor(move: Move) -> Pod:
    return replace(move.pod.pod, name=f"{move.pod.pod.name}-again", uid="again")


def check(random: RandomCluster, snapshot: Snapshot, move: Move) -> Snapshot:
    """Carry the move out as the cluster would; returns the cluster afterwards.

    The next pod comes before or after the end of the old one, and to any node that the scheduler may choose.
    """
    comes, origin, placement = successor(move), move.origin.node, move.pod.placement
    gone = without_pod(snapshot, origin, move.pod.pod)
    for moment in (snapshot, gone):
        assert named(moment, comes, placement, move.cordoned) == [move.target.node, *move.others]
    assert move.cordoned[0] == origin
    for node in move.others:
        number = number_of(with_pod(gone, node, comes, placement), random.typical)
        assert number is not None
        assert number <= move.before - random.least + 1e-9
    after = with_pod(gone, move.target.node, comes, placement)
    assert number_of(after, random.typical) == pytest.approx(move.after)
    for then in move.then:
        assert named(after, then.pod, Placement())[0] == then.place.node
        after = with_pod(after, then.place.node, then.pod, Placement())
    return after


@pytest.mark.parametrize("part", range(cases(2, 6)))
def test_on_random_clusters_every_move_is_admitted_and_has_the_number_that_was_told(part: int) -> None:
    seeds = [Random(part).randrange(1 << 30) + number for number in range(100)]
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    moves = cordoned = 0
    for seed in seeds:
        random = RandomCluster(seed)
        found = random.defragmented()
        snapshot = random.snapshot
        for move in found.moves:
            assert number_of(snapshot, random.typical) == pytest.approx(move.before), seed
            assert move.after <= move.before - random.least, seed
            snapshot = check(random, snapshot, move)
        for budget in random.budgets:
            assert sum(move.pod.pod.uid in budget.pods for move in found.moves) <= budget.allowed, seed
        assert len({move.pod.pod.uid for move in found.moves}) == len(found.moves), seed
        after = number_of(snapshot, random.typical)
        assert after == (None if found.pools[0].after is None else pytest.approx(found.pools[0].after)), seed
        moves += len(found.moves)
        cordoned += sum(len(move.cordoned) > 1 for move in found.moves)
    assert moves > 15, "the clusters must be fragmented"
    assert cordoned, "and the scheduler must have had a worse choice"


@pytest.mark.parametrize("part", range(cases(1, 4)))
def test_the_moves_are_those_of_brute_force(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod, target, node cordoned, other node, pod that then runs, and how many were not proven."""
    monkeypatch.setattr(module, "MOST_CORDONED", 2)
    seeds = [Random(1000 + part).randrange(1 << 30) + number for number in range(120)]
    print(f"seeds {seeds[0]} to {seeds[-1]}")
    moves = unproven = cordoned = 0
    for seed in seeds:
        random = RandomCluster(seed, most_nodes=6, uncertain=True)
        by_force, found = ByForce(random, 2), random.defragmented()
        assert [told(move) for move in found.moves] == by_force.moves(), seed
        assert found.unproven == len(by_force.unproven), seed
        moves += len(found.moves)
        unproven += found.unproven
        cordoned += sum(len(move.cordoned) > 1 for move in found.moves)
    assert moves > 10, "the clusters must be fragmented"
    assert unproven, "some moves must lack a proof"
    assert cordoned, "and the scheduler must have had a worse choice"
