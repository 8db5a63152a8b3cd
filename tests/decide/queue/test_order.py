"""The order of waiting pods: their age, the nodes that an older pod needs, and NUMA nodes reserved for wide pods.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from tests.builders import applied, gated_pod, guaranteed_pod, kubelet_settings, node, node_state, snapshot_of
from tests.decide.changing_cluster import ChangingCluster
from tests.seeds import SEED

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.filters import filter_node
from topomend.decide.plan import MAX_NAMED_NODES
from topomend.decide.queue import order as queue_order
from topomend.decide.queue.order import MAX_EARLIER_PODS, PATIENCE_SECONDS, Reservation
from topomend.model.bitmask import NUMAMask
from topomend.model.nodes.node_state import NodeState, emptied
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import Owner, Placement, WatchedPod
from topomend.replay.admission import admit

ONE_HOLE = node_state(pods=[guaranteed_pod("high", 4)])
"""Three CPUs are free on NUMA node 0, and none on NUMA node 1."""


def one_hole(*pods: WatchedPod) -> Snapshot:
    """Pods that wait for the one node, which has one hole."""
    return snapshot_of(ONE_HOLE, pods=pods)


def reservations(snapshot: Snapshot, now: float) -> tuple[Reservation, ...]:
    """What is reserved where every pod in the way is expected to end."""
    publications = snapshot.publications
    pods = queue_order.patient_pods(snapshot, now)
    return queue_order.reserve(snapshot, pods, lambda name: emptied(publications[name].state)).reservations


def choose(snapshot: Snapshot, pod: WatchedPod, now: float, *, yields: bool = True) -> plans.Decision:
    return plans.choose_in_order(snapshot, pod, reservations(snapshot, now), yields=yields)


def reserved(snapshot: Snapshot, pod: WatchedPod, now: float) -> dict[str, NUMAMask]:
    return queue_order.reserved_numa_nodes(snapshot, pod, reservations(snapshot, now))


OLD, YOUNG = gated_pod("old", 3, created=1), gated_pod("young", 3, created=2)


def test_the_older_of_two_equal_pods_goes_first() -> None:
    snapshot = one_hole(OLD, YOUNG)
    assert choose(snapshot, YOUNG, 2.0) == plans.Yield("ns/old")
    assert isinstance(choose(snapshot, OLD, 2.0), plans.RelaunchOn)


def test_a_smaller_pod_yields_to_an_older_one_that_the_node_admits_too() -> None:
    small = gated_pod("small", 1, created=2)
    assert choose(one_hole(OLD, small), small, 2.0) == plans.Yield("ns/old")


def test_a_pod_passes_an_older_one_that_does_not_fit() -> None:
    large = gated_pod("large", 4, created=1)
    assert isinstance(choose(one_hole(large, YOUNG), YOUNG, 2.0), plans.RelaunchOn)


def test_a_pod_waits_while_others_may_leave_its_node_for_an_older_one() -> None:
    large, too_large = gated_pod("large", 4, created=1), gated_pod("too-large", 5, created=1)
    elsewhere = replace(large, placement=Placement(node_selector={"kind": "another"}))
    snapshot = one_hole(large, YOUNG)
    waits = plans.choose_in_order(snapshot, YOUNG, untried=[too_large, large], yields=False)
    assert waits == plans.Yield("ns/large", is_untried=True)
    assert isinstance(plans.choose_in_order(snapshot, YOUNG, untried=[too_large, elsewhere]), plans.RelaunchOn)


@pytest.mark.parametrize(("overhead", "claimed"), [(1_000_000, 0), (0, 1_000_000)], ids=["overhead", "claimed"])
def test_an_older_pod_that_takes_too_much_beside_its_containers_is_not_taken_for_one_that_does_not(
    overhead: int, claimed: int
) -> None:
    heavy = gated_pod("heavy", 3, created=1)
    heavy = replace(heavy, pod=replace(heavy.pod, overhead={"cpu": overhead}, claimed={"cpu": claimed}))
    assert isinstance(choose(one_hole(heavy, YOUNG), YOUNG, 2.0), plans.RelaunchOn)
    assert choose(one_hole(heavy, OLD, YOUNG), YOUNG, 2.0) == plans.Yield("ns/old")


def test_no_pod_yields_where_the_nodes_admit_all_older_ones_too() -> None:
    first, second, small = (
        gated_pod("a-1", 1, created=1),
        gated_pod("a-2", 1, created=1),
        gated_pod("small", 1, created=2),
    )
    assert isinstance(choose(one_hole(first, second, small), small, 2.0), plans.RelaunchOn)


def test_a_pod_yields_to_no_older_one_for_which_too_little_is_left_in_total() -> None:
    small = gated_pod("small", 1, created=2)
    snapshot = one_hole(OLD, small)
    assert choose(snapshot, small, 2.0) == plans.Yield("ns/old")
    listed = changes.NodePodsListed("a", 1, "9", {"cpu": 5000, "pods": 1000}, {})  # of 7 CPUs
    full_for_old = applied(changes.ListBegun("a", 1), listed, to=snapshot)
    assert isinstance(choose(full_for_old, small, 2.0), plans.RelaunchOn)


def test_a_pod_yields_to_older_ones_that_only_together_leave_no_room() -> None:
    older, small = [gated_pod(f"a-{number}", 1, created=1) for number in range(3)], gated_pod("small", 1, created=2)
    snapshot = one_hole(*older, small)
    assert choose(snapshot, small, 2.0) == plans.Yield("ns/a-2")
    assert isinstance(choose(snapshot, older[2], 2.0), plans.RelaunchOn)


def test_a_pod_behind_too_many_older_ones_waits_whatever_the_room() -> None:
    older = [gated_pod(f"a-{number:02d}", 0, created=1) for number in range(MAX_EARLIER_PODS + 1)]
    last, next_to_last = gated_pod("last", 1, created=2), gated_pod("a-99", 1, created=1)
    snapshot = one_hole(*older, last)
    assert choose(snapshot, last, 2.0) == plans.Yield(f"ns/{older[-1].name}")
    snapshot = one_hole(*older[:-1], next_to_last)
    assert isinstance(choose(snapshot, next_to_last, 2.0), plans.RelaunchOn)


def test_no_pod_yields_where_more_nodes_admit_the_older_ones_than_there_are_pods() -> None:
    older = [gated_pod(f"a-{number:02d}", 1, created=1) for number in range(MAX_EARLIER_PODS + 2)]
    young = gated_pod("young", 1, created=2)
    snapshot = one_hole(*older, young)
    *names, last = [f"b-{number:02d}" for number in range(len(older) + MAX_NAMED_NODES)]
    for name in (*names, last):
        snapshot = apply(snapshot, changes.NodeUpdated(node(name)))
    for version, name in enumerate(names, 10):
        snapshot = apply(snapshot, changes.Published(replace(ONE_HOLE, name=name), str(version)))
    assert isinstance(choose(snapshot, young, 2.0), plans.Yield)
    snapshot = apply(snapshot, changes.Published(replace(ONE_HOLE, name=last), "99"))
    assert isinstance(choose(snapshot, young, 2.0), plans.RelaunchOn)


def test_thousands_of_older_pods_that_do_not_fit_and_are_all_different_delay_no_decision() -> None:
    older = [gated_pod(f"older-{index}", 7) for index in range(3_000)]
    different = [
        replace(pod, placement=Placement(node_selector={"kubernetes.io/hostname": "a", "kind": str(index)}))
        for index, pod in enumerate(older)
    ]
    younger = gated_pod("younger", 2, created=1)
    snapshot = one_hole(*different, younger)
    began = time.thread_time()
    assert isinstance(choose(snapshot, younger, 0.0), plans.RelaunchOn)
    assert time.thread_time() - began < 1


def test_an_older_pod_that_may_not_go_to_the_node_delays_nobody() -> None:
    elsewhere = replace(OLD, placement=Placement({"kubernetes.io/hostname": "b"}))
    assert isinstance(choose(one_hole(elsewhere, YOUNG), YOUNG, 2.0), plans.RelaunchOn)


def test_an_older_pod_that_is_assumed_or_deleted_delays_nobody_but_an_assumed_one_counts() -> None:
    leaving = replace(OLD, deleting=True)
    assert isinstance(choose(one_hole(leaving, YOUNG), YOUNG, 2.0), plans.RelaunchOn)
    released = apply(one_hole(OLD, YOUNG), changes.PodAssumed(OLD.pod, ("a",), 2.0))
    waits = choose(released, YOUNG, 2.0)
    assert isinstance(waits, plans.Wait)
    assert waits.reason == "no node admits it now: 1 of 1 node does not fit its cpu on NUMA nodes"


def test_pods_of_the_same_second_go_in_the_order_of_their_names() -> None:
    first, second = gated_pod("a-1", 3, created=1), gated_pod("a-2", 3, created=1)
    snapshot = one_hole(second, first)
    assert isinstance(choose(snapshot, first, 2.0), plans.RelaunchOn)
    assert choose(snapshot, second, 2.0) == plans.Yield("ns/a-1")


def test_a_pod_of_higher_priority_goes_before_older_ones_of_any_namespace() -> None:
    urgent = replace(gated_pod("urgent", 3, created=3), priority=100)
    assert choose(one_hole(OLD, urgent), OLD, 3.0) == plans.Yield("ns/urgent")
    elsewhere = replace(urgent, namespace="other")
    assert choose(one_hole(OLD, elsewhere), OLD, 3.0) == plans.Yield("other/urgent")
    assert isinstance(choose(one_hole(OLD, elsewhere), elsewhere, 3.0), plans.RelaunchOn)
    unimportant = replace(elsewhere, priority=-1)
    assert isinstance(choose(one_hole(OLD, unimportant), OLD, 3.0), plans.RelaunchOn)


LATER = 1.0 + PATIENCE_SECONDS


def place(choice: plans.Decision) -> str:
    assert isinstance(choice, plans.RelaunchOn), choice
    return choice.candidates[0].place


def holding(snapshot: Snapshot, name: str, *pods: Pod) -> Snapshot:
    """The snapshot with a node, new or not, on which these pods alone run."""
    published = changes.Published(node_state(name=name, pods=pods), "9")
    return applied(changes.NodeUpdated(node(name)), published, to=snapshot)


def test_a_numa_node_is_reserved_for_a_wide_pod_that_has_waited_so_that_small_ones_cannot_pass_it() -> None:
    wide, small = gated_pod("wide", 4, created=1), gated_pod("small", 1, created=2)
    snapshot = one_hole(wide, small)
    snapshot = holding(snapshot, "a", guaranteed_pod("low", 3), guaranteed_pod("high", 3))
    assert place(choose(snapshot, small, LATER - 1)) == "a NUMA 1"
    decision = choose(snapshot, small, LATER)
    assert isinstance(decision, plans.Wait)
    assert decision.reason == "a NUMA 1 admits it, but is reserved for wide, whose turn comes first"
    assert isinstance(choose(snapshot, small, LATER, yields=False), plans.Wait)


def test_other_numa_nodes_and_nodes_stay_open_while_one_is_reserved() -> None:
    wide, small, medium = (
        gated_pod("wide", 4, created=1),
        gated_pod("small", 1, created=2),
        gated_pod("medium", 3, created=2),
    )
    snapshot = one_hole(wide, small)
    assert place(choose(snapshot, small, LATER)) == "a NUMA 0"
    assert place(choose(snapshot, medium, LATER)) == "a NUMA 0"
    snapshot = holding(snapshot, "a", guaranteed_pod("low", 3), guaranteed_pod("high", 2))
    snapshot = holding(snapshot, "b", guaranteed_pod("left", 3), guaranteed_pod("right", 3))
    assert place(choose(snapshot, small, LATER)) == "b NUMA 1"


def test_a_pod_that_is_not_aligned_avoids_every_node_with_a_reserved_numa_node() -> None:
    wide, small = gated_pod("wide", 4, created=1), gated_pod("small", 0, created=2)
    snapshot = one_hole(wide, small)
    assert isinstance(choose(snapshot, small, LATER), plans.Wait)
    snapshot = holding(snapshot, "b", guaranteed_pod("right", 4))
    assert choose(snapshot, small, LATER).nodes == ("b",)  # type: ignore[union-attr]


def test_numa_nodes_are_reserved_for_no_more_than_two_pods() -> None:
    wides, small = [gated_pod(f"wide-{number}", 4, created=1) for number in range(3)], gated_pod("small", 1, created=2)
    snapshot = one_hole(*wides, small)
    for name in "bc":
        snapshot = holding(snapshot, name, guaranteed_pod("right", 4))
    decision = reserved(snapshot, small, LATER)
    assert decision == {"a": 0b10, "b": 0b10}


def test_numa_nodes_are_reserved_for_pods_of_higher_priority_before_older_ones() -> None:
    urgent = replace(gated_pod("urgent", 4, created=2), priority=100)
    snapshot = one_hole(*(gated_pod(f"wide-{number}", 4, created=1) for number in range(2)), urgent)
    later = LATER + 1
    assert [pod.name for pod in queue_order.patient_pods(snapshot, later)] == ["urgent", "wide-0", "wide-1"]
    assert reserved(snapshot, urgent, later) == {}
    assert reserved(snapshot, replace(OLD, creation_time=""), later) == {"a": 0b10}


def test_a_numa_node_stays_reserved_for_a_pod_that_fits_until_it_is_ungated() -> None:
    """A pod of another namespace does not yield, and would be faster at times."""
    stranger = replace(YOUNG, namespace="other")
    waiting = one_hole(OLD, stranger)
    assert reserved(waiting, stranger, LATER) == {"a": 0b01}
    waits = choose(waiting, stranger, LATER)
    assert isinstance(waits, plans.Wait)
    assert waits.reason.endswith("is reserved for a pod of another namespace, whose turn comes first"), "unnamed"
    earlier = reservations(waiting, LATER)
    assumed = apply(waiting, changes.PodAssumed(OLD.pod, ("a",), LATER))
    assert queue_order.reserved_numa_nodes(assumed, stranger, earlier) == {}


def test_all_numa_nodes_are_reserved_for_a_pod_that_is_spread() -> None:
    spread = kubelet_settings("best-effort")
    snapshot = one_hole(gated_pod("wide", 7, created=1), YOUNG)
    snapshot = apply(snapshot, changes.Published(replace(ONE_HOLE, kubelet=spread), "9"))
    assert reserved(snapshot, YOUNG, LATER) == {"a": 0b11}


def test_a_pod_does_not_yield_to_older_ones_of_another_namespace() -> None:
    """The work queue has namespaces take turns: a thousand older pods of one must not hold up another."""
    older = [replace(gated_pod(f"a-{number}", 3, created=1), namespace="flood") for number in range(30)]
    assert isinstance(choose(one_hole(*older, YOUNG), YOUNG, 2.0), plans.RelaunchOn)


def test_namespaces_share_the_reservations() -> None:
    flood = [replace(gated_pod(f"wide-{number}", 4, created=1), namespace="flood") for number in range(30)]
    quiet, small = gated_pod("wide", 4, created=2), gated_pod("small", 1, created=3)
    snapshot = one_hole(*flood, quiet, small)
    for name in "bc":
        snapshot = holding(snapshot, name, guaranteed_pod("right", 4))
    holders = [reservation.pod.namespace for reservation in reservations(snapshot, LATER)]
    assert holders == ["flood", "ns"]


def test_pods_that_rest_get_no_reservation_and_those_behind_them_do() -> None:
    never, wide = gated_pod("never", 4, created=1), gated_pod("wide", 4, created=2)
    snapshot = one_hole(never, wide, gated_pod("small", 1, created=3))
    patient = queue_order.patient_pods(snapshot, LATER, {never.uid})
    assert [pod.name for pod in patient] == ["wide", "small"]


def test_a_numa_node_is_reserved_only_where_the_pods_in_the_way_will_end() -> None:
    snapshot = one_hole(gated_pod("wide", 4, created=1))
    serving = node_state(pods=[guaranteed_pod("serves", 1), guaranteed_pod("serves-too", 4)])
    unknown = queue_order.reserve(snapshot, queue_order.patient_pods(snapshot, LATER), lambda _: None)
    lasting = queue_order.reserve(snapshot, queue_order.patient_pods(snapshot, LATER), lambda _: serving)
    ending = queue_order.reserve(snapshot, queue_order.patient_pods(snapshot, LATER), lambda _: node_state())
    assert (unknown.reservations, unknown.tried) == ((), ())
    assert (lasting.reservations, lasting.tried) == ((), (snapshot.gated["ns", "wide"].uid,))
    assert [reservation.node for reservation in ending.reservations] == ["a"]


@pytest.mark.parametrize(
    ("owner", "ends"),
    [
        (None, True),
        (Owner("Job", "train", "1", "batch/v1"), True),
        (Owner("Workflow", "train", "1", "argoproj.io/v1alpha1"), True),
        (Owner("ReplicaSet", "web", "1", "apps/v1"), False),
        (Owner("DaemonSet", "log", "1", "apps/v1"), False),
        (Owner("StatefulSet", "db", "1", "apps/v1"), False),
        (Owner("ReplicationController", "web", "1", "v1"), False),
        (Owner("Node", "a", "1", "v1"), False),
        (Owner("ReplicaSet", "web", "1", "example.com/v1"), True),
    ],
)
def test_pods_of_services_are_not_expected_to_end(owner: Owner | None, ends: bool) -> None:
    assert queue_order.is_expected_to_end(owner) == ends


def test_nothing_is_reserved_for_an_infeasible_pod_nor_for_a_younger_one() -> None:
    impossible, small, wide = (
        gated_pod("impossible", 5, created=1),
        gated_pod("small", 1, created=2),
        gated_pod("wide", 4, created=3),
    )
    assert isinstance(choose(one_hole(impossible, small, wide), small, LATER), plans.RelaunchOn)


def test_a_wide_pod_runs_although_small_ones_never_stop_coming() -> None:
    """Small pods come every second and stay for ten: without a reserved NUMA node CPUs are always missing."""
    wide, is_placed, now = gated_pod("wide", 4, created=1), False, 1.0
    ends = {f"first-{number}": 2.0 + number for number in range(7)}
    snapshot = one_hole(wide)
    for second in range(120):
        now += 1.0
        ends = {name: end for name, end in ends.items() if end > now}
        state = node_state(pods=[guaranteed_pod(name, 1) for name in ends])
        snapshot = apply(snapshot, changes.Published(state, str(10 + second)))
        is_placed = isinstance(choose(snapshot, wide, now), plans.RelaunchOn)
        if is_placed:
            break
        small = gated_pod(f"small-{second:03d}", 1, created=2)
        with_small = apply(snapshot, changes.PodUpdated(small, now))
        if isinstance(choose(with_small, small, now), plans.RelaunchOn):
            ends[small.name] = now + 10.0
    assert is_placed


def yields_plainly(snapshot: Snapshot, asked: WatchedPod, nodes: Sequence[str], others: Sequence[str]) -> str:
    """The pod that ``asked`` yields to, where every node is replayed and every other candidate asked."""

    def place(earlier: WatchedPod, states: dict[str, NodeState]) -> bool:
        for name, state in states.items():
            if admits(earlier, name, state):
                states[name] = admit(state, earlier.pod)[1]
                return True
        return False

    def admits(earlier: WatchedPod, name: str, state: NodeState) -> bool:
        rejected = filter_node(snapshot.nodes[name], earlier.placement, requests_of(earlier.pod))
        return not rejected and admit(state, earlier.pod)[0].admitted

    waiting = [
        other
        for other in sorted(snapshot.gated.values(), key=lambda other: other.order)
        if (other.order < asked.order if other.namespace == asked.namespace else other.priority > asked.priority)
        and queue_order.is_waiting(snapshot, other)
    ]
    states = {name: snapshot.publications[name].state_with_assumed() for name in (*nodes, *others)}
    without = {name: states[name] for name in nodes}
    beside = {name: admit(states[name], asked.pod)[1] for name in nodes}
    unaffected: list[tuple[object, ...]] = []
    placed = 0
    for earlier in waiting:
        kind = earlier.placement, earlier.pod.containers
        if kind in unaffected:
            continue
        enough = sum(admits(earlier, name, states[name]) for name in others) > len(waiting)
        if enough or not place(earlier, without):
            unaffected.append(kind)
        elif placed == MAX_EARLIER_PODS or not place(earlier, beside):
            return f"{earlier.namespace}/{earlier.name}"
        else:
            placed += 1
    return ""


@pytest.mark.parametrize("seed", [SEED])
def test_a_pod_yields_to_whom_it_yields_where_every_node_is_replayed(seed: int) -> None:
    random = Random(seed)
    cluster = ChangingCluster(random)
    yielded = 0
    for _ in range(1200):
        cluster.change()
        asked = cluster.asked()
        snapshot = applied(changes.PodForgotten(asked.namespace, asked.name), to=cluster.snapshot)
        candidates = diagnose(snapshot, asked.pod, asked.placement).candidates
        nodes = [candidate.node for candidate in candidates[: random.choice((1, 3, len(candidates)))]]
        others = [candidate.node for candidate in candidates[len(nodes) :]]
        to = queue_order.yields_to(snapshot, asked, nodes, candidates)
        assert (f"{to.namespace}/{to.name}" if to else "") == yields_plainly(snapshot, asked, nodes, others)
        yielded += to is not None
    assert yielded


def test_several_reservations_of_one_node_keep_all_of_its_numa_nodes() -> None:
    """A place that was freed by preemption, and one whose pods are expected to end."""
    first, second, later = (gated_pod(f"p{number}", created=number) for number in range(3))
    snapshot = snapshot_of(node_state(), pods=[first, second, later])
    held = [Reservation(first, "a", 0b01), Reservation(second, "a", 0b10)]
    assert queue_order.reserved_numa_nodes(snapshot, later, held) == {"a": 0b11}
    assert queue_order.reserved_numa_nodes(snapshot, second, held) == {"a": 0b01}
