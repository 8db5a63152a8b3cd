from dataclasses import replace

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide import queue_order
from topomend.decide.plan import MAX_NAMED_NODES
from topomend.decide.queue_order import MAX_OLDER_PODS, PATIENCE_SECONDS
from topomend.model.bitmask import parse_id_list
from topomend.model.cluster import Node, Placement, WatchedPod
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Container, ContainerKind, Pod, Resources
from topomend.model.shape import parse_shape
from topomend.replay.admission import admit
from topomend.wire.group import FIT_GATE

SETTINGS = KubeletSettings(
    topology_manager_policy="single-numa-node", cpu_manager_policy="static", reserved_cpus=parse_id_list("0")
)


def asking(cpus: int, name: str) -> Pod:
    amounts = {"cpu": cpus * 1000, "memory": 1000 << 20}
    return Pod("ns", name, name, (Container("main", ContainerKind.APP, Resources(amounts, amounts)),))


def waiting(name: str, cpus: int, second: int, **fields: object) -> WatchedPod:
    time = f"2026-01-01T00:00:{second:02d}Z"
    made = WatchedPod("ns", name, name, "5", asking(cpus, name), gates=(FIT_GATE,), creation_time=time)
    return replace(made, **fields)  # type: ignore[arg-type]


def one_hole(*pods: WatchedPod) -> Snapshot:
    """A node with three CPUs free on NUMA 0 and one on NUMA 1."""
    labels = {"kubernetes.io/hostname": "a"}
    node = Node("a", labels=labels, allocatable={"cpu": 7000, "memory": 16000 << 30, "pods": 110000})
    state = NodeState("a", parse_shape("numa:2 cores:4").machine(), SETTINGS)
    state = admit(admit(state, asking(4, "held"))[1], asking(0, "x"))[1]
    snapshot = apply(apply(Snapshot(), changes.NodeUpdated(node)), changes.Published(state, "3"))
    for each in pods:
        snapshot = apply(snapshot, changes.PodUpdated(each, 1.0))
    return snapshot


OLD, YOUNG = waiting("old", 3, 1), waiting("young", 3, 2)


def test_of_two_that_ask_the_same_the_older_goes_first() -> None:
    snapshot = one_hole(OLD, YOUNG)
    assert plans.choose_in_order(snapshot, YOUNG, 2.0) == plans.Yield("ns/old")
    assert isinstance(plans.choose_in_order(snapshot, OLD, 2.0), plans.RelaunchOn)


def test_a_smaller_pod_yields_to_an_older_one_that_the_node_admits_too() -> None:
    small = waiting("small", 1, 2)
    assert plans.choose_in_order(one_hole(OLD, small), small, 2.0) == plans.Yield("ns/old")


def test_a_pod_passes_an_older_one_that_does_not_fit() -> None:
    large = waiting("large", 4, 1)
    assert isinstance(plans.choose_in_order(one_hole(large, YOUNG), YOUNG, 2.0), plans.RelaunchOn)


def test_no_pod_yields_where_the_nodes_admit_all_older_ones_too() -> None:
    first, second, small = waiting("a-1", 1, 1), waiting("a-2", 1, 1), waiting("small", 1, 2)
    assert isinstance(plans.choose_in_order(one_hole(first, second, small), small, 2.0), plans.RelaunchOn)


def test_each_older_pod_alone_leaves_room_but_together_they_do_not() -> None:
    older, small = [waiting(f"a-{number}", 1, 1) for number in range(3)], waiting("small", 1, 2)
    snapshot = one_hole(*older, small)
    assert plans.choose_in_order(snapshot, small, 2.0) == plans.Yield("ns/a-2")
    assert isinstance(plans.choose_in_order(snapshot, older[2], 2.0), plans.RelaunchOn)


def test_behind_many_older_ones_a_pod_waits_whatever_the_room() -> None:
    older = [waiting(f"a-{number:02d}", 0, 1) for number in range(MAX_OLDER_PODS + 1)]
    last, next_to_last = waiting("last", 1, 2), waiting("a-99", 1, 1)
    snapshot = one_hole(*older, last)
    assert plans.choose_in_order(snapshot, last, 2.0) == plans.Yield(f"ns/{older[-1].name}")
    snapshot = one_hole(*older[:-1], next_to_last)
    assert isinstance(plans.choose_in_order(snapshot, next_to_last, 2.0), plans.RelaunchOn)


def test_no_pod_yields_where_more_nodes_admit_the_older_ones_than_there_are_pods() -> None:
    older = [waiting(f"a-{number:02d}", 1, 1) for number in range(MAX_OLDER_PODS + 2)]
    young = waiting("young", 1, 2)
    snapshot = one_hole(*older, young)
    here, hole = snapshot.nodes["a"], snapshot.publications["a"].state
    for number in range(len(older) + MAX_NAMED_NODES):
        name = f"b-{number:02d}"
        snapshot = apply(
            snapshot, changes.NodeUpdated(replace(here, name=name, labels={"kubernetes.io/hostname": name}))
        )
        if number + 1 < len(older) + MAX_NAMED_NODES:
            snapshot = apply(snapshot, changes.Published(replace(hole, name=name), str(10 + number)))
    assert isinstance(plans.choose_in_order(snapshot, young, 2.0), plans.Yield)
    snapshot = apply(snapshot, changes.Published(replace(hole, name=name), "99"))
    assert isinstance(plans.choose_in_order(snapshot, young, 2.0), plans.RelaunchOn)


def test_an_older_pod_that_may_not_go_there_holds_nobody_up() -> None:
    elsewhere = replace(OLD, placement=Placement({"kubernetes.io/hostname": "b"}))
    assert isinstance(plans.choose_in_order(one_hole(elsewhere, YOUNG), YOUNG, 2.0), plans.RelaunchOn)


def test_an_older_pod_that_is_on_its_way_or_ends_holds_nobody_up_but_its_place_is_taken() -> None:
    leaving = replace(OLD, deleting=True)
    assert isinstance(plans.choose_in_order(one_hole(leaving, YOUNG), YOUNG, 2.0), plans.RelaunchOn)
    released = apply(one_hole(OLD, YOUNG), changes.PodAssumed(OLD.pod, ("a",), 2.0))
    waits = plans.choose_in_order(released, YOUNG, 2.0)
    assert isinstance(waits, plans.Wait)
    assert waits.reason == "no node admits it now: 1 cpu"


def test_pods_of_one_second_go_by_name() -> None:
    first, second = waiting("a-1", 3, 1), waiting("a-2", 3, 1)
    snapshot = one_hole(second, first)
    assert isinstance(plans.choose_in_order(snapshot, first, 2.0), plans.RelaunchOn)
    assert plans.choose_in_order(snapshot, second, 2.0) == plans.Yield("ns/a-1")


LATER = 1.0 + PATIENCE_SECONDS


def _place(choice: plans.RelaunchOn | plans.Wait | plans.Yield) -> str:
    assert isinstance(choice, plans.RelaunchOn), choice
    return choice.candidates[0].place


def _holding(snapshot: Snapshot, name: str, *pods: Pod) -> Snapshot:
    """With a node, new or not, that holds these pods alone."""
    state = replace(snapshot.publications["a"].state, name=name, pods=(), memory=None)
    for each in pods:
        state = admit(state, each)[1]
    node = replace(snapshot.nodes["a"], name=name, labels={"kubernetes.io/hostname": name})
    return apply(apply(snapshot, changes.NodeUpdated(node)), changes.Published(state, "9"))


def test_a_numa_node_is_kept_for_a_wide_pod_that_has_waited_and_small_ones_no_longer_pass_it() -> None:
    wide, small = waiting("wide", 4, 1), waiting("small", 1, 2)
    snapshot = one_hole(wide, small)
    snapshot = _holding(snapshot, "a", asking(3, "low"), asking(3, "high"))
    assert _place(plans.choose_in_order(snapshot, small, LATER - 1)) == "a NUMA 1"
    kept = plans.choose_in_order(snapshot, small, LATER)
    assert isinstance(kept, plans.Wait)
    assert kept.reason == "a NUMA 1 admits it, but is reserved for a pod that has waited longer"
    assert isinstance(plans.choose_in_order(snapshot, small, LATER, yields=False), plans.Wait)


def test_the_other_numa_nodes_and_nodes_stay_open_while_one_is_kept() -> None:
    wide, small, medium = waiting("wide", 4, 1), waiting("small", 1, 2), waiting("medium", 3, 2)
    snapshot = one_hole(wide, small)
    assert _place(plans.choose_in_order(snapshot, small, LATER)) == "a NUMA 0"
    assert _place(plans.choose_in_order(snapshot, medium, LATER)) == "a NUMA 0"
    snapshot = _holding(snapshot, "a", asking(3, "low"), asking(2, "high"))
    snapshot = _holding(snapshot, "b", asking(3, "left"), asking(3, "right"))
    assert _place(plans.choose_in_order(snapshot, small, LATER)) == "b NUMA 1"


def test_a_pod_that_is_not_aligned_goes_to_no_node_of_which_anything_is_kept() -> None:
    wide, small = waiting("wide", 4, 1), waiting("small", 0, 2)
    snapshot = one_hole(wide, small)
    assert isinstance(plans.choose_in_order(snapshot, small, LATER), plans.Wait)
    snapshot = _holding(snapshot, "b", asking(4, "right"))
    assert plans.choose_in_order(snapshot, small, LATER).nodes == ("b",)  # type: ignore[union-attr]


def test_numa_nodes_are_kept_for_no_more_than_two_pods() -> None:
    wides, small = [waiting(f"wide-{number}", 4, 1) for number in range(3)], waiting("small", 1, 2)
    snapshot = one_hole(*wides, small)
    for name in "bc":
        snapshot = _holding(snapshot, name, asking(4, "right"))
    kept = queue_order.reserved_numa_nodes(snapshot, small, LATER)
    assert kept == {"a": 0b10, "b": 0b10}


def test_a_pod_that_fits_already_needs_nothing_kept_and_one_that_is_spread_needs_all() -> None:
    assert queue_order.reserved_numa_nodes(one_hole(OLD, YOUNG), YOUNG, LATER) == {}
    spread = replace(SETTINGS, topology_manager_policy="best-effort")
    snapshot = one_hole(waiting("wide", 7, 1), YOUNG)
    snapshot = apply(snapshot, changes.Published(replace(snapshot.publications["a"].state, kubelet=spread), "9"))
    assert queue_order.reserved_numa_nodes(snapshot, YOUNG, LATER) == {"a": 0b11}


def test_nothing_is_kept_for_a_pod_that_no_node_could_ever_admit_nor_for_a_younger_one() -> None:
    impossible, small, wide = waiting("impossible", 5, 1), waiting("small", 1, 2), waiting("wide", 4, 3)
    assert isinstance(plans.choose_in_order(one_hole(impossible, small, wide), small, LATER), plans.RelaunchOn)


def test_a_wide_pod_runs_though_small_ones_never_cease_to_come() -> None:
    """Small pods come every second and stay for ten: without a kept node there are always CPUs missing."""
    wide, ran, now = waiting("wide", 4, 1), None, 1.0
    running = {f"first-{number}": 2.0 + number for number in range(7)}
    snapshot = one_hole(wide)
    empty = replace(snapshot.publications["a"].state, pods=())
    for second in range(120):
        now += 1.0
        running = {name: end for name, end in running.items() if end > now}
        state = empty
        for name in running:
            state = admit(state, asking(1, name))[1]
        snapshot = apply(snapshot, changes.Published(state, str(10 + second)))
        if isinstance(plans.choose_in_order(snapshot, wide, now), plans.RelaunchOn):
            ran = now
            break
        small = waiting(f"small-{second:03d}", 1, 2)
        if isinstance(
            plans.choose_in_order(apply(snapshot, changes.PodUpdated(small, now)), small, now), plans.RelaunchOn
        ):
            running[small.name] = now + 10.0
    assert ran is not None
