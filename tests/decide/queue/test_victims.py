"""Who makes room for a waiting pod: kube-scheduler, or the operator and by whose eviction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.builders import gated_pod, guaranteed_pod, node, node_state, pod, running, snapshot_of, watched_pod
from tests.seeds import SEED

from topomend.cache import changes
from topomend.cache.changes import NOMINATED_SECONDS, UNBOUND_SECONDS, apply
from topomend.cache.changes.pods import UNPUBLISHED_SECONDS
from topomend.cache.snapshot import Snapshot
from topomend.decide.budgets import Budget
from topomend.decide.queue.victims import (
    Preemption,
    Running,
    carried_out,
    choose_victims,
    is_better,
    is_choosing,
    schedulers_choice,
    undecided_nodes,
    violates,
    where_budgets_decide,
    where_scheduler_makes_room_for_both,
    where_scheduler_preempts,
    with_awaited,
    would_admit_empty,
)
from topomend.model.nodes.node import Taint
from topomend.model.pods.scheduling import Placement, WatchedPod
from topomend.replay.admission import admit, release
from topomend.wire.group import FIT_GATE

URGENT = gated_pod("urgent", 3, priority=10)


def occupied(name: str, **cpus: int) -> tuple[Snapshot, dict[str, list[WatchedPod]]]:
    """A node on which pods of so many CPUs run, all of priority 0."""
    pods = [watched_pod(pod_name, count, node=name, phase="Running") for pod_name, count in cpus.items()]
    return snapshot_of(running(node_state(name=name), *(pod.pod for pod in pods))), {name: pods}


def victims(
    snapshot: Snapshot, on: Mapping[str, Sequence[WatchedPod]], of: WatchedPod = URGENT, **options: object
) -> list[str] | None:
    chosen = choose_victims(snapshot, of, Running(on, **options))  # type: ignore[arg-type]
    return None if chosen is None else sorted(victim.name for victim in chosen.victims)


def test_one_victim_is_enough_where_its_numa_node_is_then_large_enough() -> None:
    snapshot, on = occupied("a", large=3, small=2)
    assert victims(snapshot, on, gated_pod("wide", 4, priority=10)) == ["small"]


def test_several_go_only_where_none_is_enough_alone() -> None:
    snapshot, on = occupied("a", one=2, two=1, three=2, four=2)
    assert victims(snapshot, on) == ["four", "three"]


def test_a_pod_of_equal_or_higher_priority_is_never_a_victim() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    for priority in (10, 11):
        assert victims(snapshot, {"a": [replace(pod, priority=priority) for pod in on["a"]]}) is None


def test_of_equally_few_victims_those_of_the_lowest_priority_go() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    one, two = on["a"]
    assert victims(snapshot, {"a": [replace(one, priority=5), replace(two, priority=3)]}) == ["two"]
    assert victims(snapshot, {"a": [replace(one, priority=3), replace(two, priority=5)]}) == ["one"]


def test_the_node_with_the_fewest_victims_is_chosen() -> None:
    first = [watched_pod(f"one-{number}", 2, node="a") for number in range(2)]
    second = [watched_pod("two", 4, node="b"), watched_pod("three", 3, node="b")]
    snapshot = snapshot_of(
        running(node_state("cores:4 memory:8Gi", name="a", reserved_cpus="0"), *(pod.pod for pod in first[:1])),
        running(node_state(name="b"), *(pod.pod for pod in second)),
    )
    chosen = choose_victims(snapshot, URGENT, Running({"a": first[:1], "b": second}))
    assert chosen is not None
    assert chosen.node == "a"
    assert len(chosen.victims) == 1


def test_protected_pods_stay() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    (first,) = victims(snapshot, on) or []
    protected = {pod.uid for pod in on["a"] if pod.name == first}
    assert victims(snapshot, on, staying=protected) == [name for name in ("one", "two") if name != first]
    assert victims(snapshot, on, staying={pod.uid for pod in on["a"]}) is None


def test_pods_that_are_being_deleted_need_no_help() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    leaving = [replace(on["a"][0], deleting=True), on["a"][1]]
    chosen = choose_victims(snapshot, URGENT, Running({"a": leaving}))
    assert chosen is not None
    assert (chosen.node, chosen.victims) == ("a", ())


def test_totals_count_pods_that_replay_does_not_know() -> None:
    """A NUMA node is free, but a pod without exclusive CPUs requests too many in total."""
    shared = replace(watched_pod("shared", 1, node="a"), pod=pod("shared", "request:cpu=6"))
    assert victims(snapshot_of(node_state(name="a")), {"a": [shared]}) == ["shared"]


def test_a_pod_that_was_assumed_and_is_not_listed_yet_keeps_its_room() -> None:
    snapshot, on = occupied("a", one=3)
    snapshot = apply(snapshot, changes.PodAssumed(guaranteed_pod("arriving", 4), ("a",), 0.0))
    assert victims(snapshot, on) == ["one"]
    assert victims(snapshot, on, gated_pod("wide", 4, priority=10)) is None


def test_a_pod_that_is_listed_and_not_published_yet_keeps_its_room_too() -> None:
    snapshot, on = occupied("a", one=3)
    arriving = watched_pod("arriving", 4, node="a")
    snapshot = apply(snapshot, changes.PodAssumed(arriving.pod, ("a",), 0.0))
    assert victims(snapshot, {"a": [*on["a"], arriving]}) in (["one"], ["arriving"])
    assert victims(snapshot, {"a": [*on["a"], replace(arriving, priority=20)]}) == ["one"]


def test_victims_are_sought_on_nodes_that_would_admit_the_pod_if_they_were_empty() -> None:
    snapshot = snapshot_of(
        running(node_state(name="full"), guaranteed_pod("one", 3), guaranteed_pod("two", 4)),
        node_state("sockets:2 cores:2 memory:8Gi", name="small"),
        running(node_state(name="tainted"), guaranteed_pod("three", 3)),
        node_state(name="doubtful"),
    )
    snapshot = apply(snapshot, changes.NodeUpdated(node("tainted", taints=(Taint("gpu", "NoSchedule"),))))
    snapshot = apply(snapshot, changes.Published(node_state(name="doubtful"), "9", problem="no checkpoint"))
    names = ("full", "small", "tainted", "doubtful", "gone")
    assert [name for name in names if would_admit_empty(snapshot, URGENT, name)] == ["full"]


def test_the_pod_is_admitted_once_its_victims_have_left_and_not_before_the_last() -> None:
    """Random nodes full of pods of random priority."""
    random = Random(SEED)
    several = 0
    for _ in range(200):
        state, pods = node_state("sockets:2 cores:6 memory:8Gi", name="a"), []
        for number in range(8):
            other = watched_pod(f"p{number}", random.randint(1, 4), node="a", priority=random.randint(0, 12))
            verdict, state = admit(state, other.pod)
            pods += [other] if verdict.admitted else []
        urgent = gated_pod("urgent", random.randint(2, 5), priority=10)
        snapshot = apply(snapshot_of(state), changes.NodeUpdated(node("a", cpus=11)))
        chosen = choose_victims(snapshot, urgent, Running({"a": pods}))
        if chosen is None or not chosen.victims:
            continue
        several += len(chosen.victims) > 1
        assert all(victim.priority < 10 for victim in chosen.victims)
        for spared in (None, *chosen.victims):
            after = state
            for victim in chosen.victims:
                after = after if victim is spared else release(after, victim.namespace, victim.name)
            assert admit(after, urgent.pod)[0].admitted is (spared is None), f"{spared and spared.name} could stay"
    assert several


def test_a_place_that_was_freed_for_one_pod_is_not_given_to_another() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    leaving = {"a": [replace(on["a"][0], deleting=True), on["a"][1]]}
    assert victims(snapshot, leaving) == []
    assert victims(snapshot, leaving, awaited={"a": [guaranteed_pod("other", 3)]}) == ["two"]
    assert victims(snapshot, leaving, awaited={"a": [URGENT.pod]}) == [], "it is the pod's own place"


def test_no_pod_is_evicted_whose_next_one_takes_the_place_before_it() -> None:
    """The totals leave room for both, and nobody gates the next pod: it is bound while this one is still gated."""
    snapshot, on = occupied("a", one=2, two=2)
    (first,) = victims(snapshot, on, gated_pod("urgent", 3, priority=10)) or []
    returning = {pod.uid for pod in on["a"] if pod.name == first}
    (second,) = victims(snapshot, on, returning=returning) or []
    assert second != first
    assert victims(snapshot, on, returning={pod.uid for pod in on["a"]}) is None


def test_a_pod_is_evicted_whose_next_one_finds_no_room_beside_the_nominated_pod() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    assert victims(snapshot, on, returning={pod.uid for pod in on["a"]}) == ["one"]


def test_of_equal_nodes_the_one_is_chosen_whose_victim_started_last() -> None:
    pods = {
        name: [watched_pod(f"on-{name}", 4, node=name, start_time=f"2026-01-01T00:00:0{start}Z")]
        for name, start in (("a", 1), ("b", 3), ("c", 2))
    }
    states = [running(node_state(name=name), guaranteed_pod("high", 3), on[0].pod) for name, on in pods.items()]
    chosen = choose_victims(snapshot_of(*states), URGENT, Running(pods))
    assert chosen is not None
    assert chosen.node == "b"


def scheduler_on(snapshot: Snapshot, on: Mapping[str, Sequence[WatchedPod]], **options: object) -> tuple[str, ...]:
    return where_scheduler_preempts(snapshot, URGENT, Running(on, **options))  # type: ignore[arg-type]


def test_the_scheduler_preempts_where_totals_alone_are_short() -> None:
    """A NUMA node is free, but a pod without exclusive CPUs requests too many in total."""
    shared = replace(watched_pod("shared", 1, node="a"), pod=pod("shared", "request:cpu=6"))
    snapshot = snapshot_of(node_state(name="a"))
    assert scheduler_on(snapshot, {"a": [shared]}) == ("a",)
    assert scheduler_on(snapshot, {"a": [replace(shared, priority=10)]}) == ()
    assert scheduler_on(snapshot, {"a": [shared]}, staying={shared.uid}) == (), "it is stuck"


def test_the_scheduler_preempts_where_its_victims_free_the_numa_node_too() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    assert scheduler_on(snapshot, on) == ("a",)


def test_it_does_not_where_enough_is_left_in_total() -> None:
    """It would bind the pod at once, and the kubelet would refuse it."""
    snapshot, on = occupied("a", one=2, two=2)
    assert scheduler_on(snapshot, on) == ()
    assert victims(snapshot, on) is not None


def test_it_does_not_where_its_victim_leaves_the_numa_node_too_small() -> None:
    """It spares the more important pods first, and each keeps half of a NUMA node."""
    snapshot, on = occupied("a", one=2, two=1, three=2, four=2)
    more = {pod.name: replace(pod, priority=5 if pod.name in ("one", "three") else 0) for pod in on["a"]}
    assert scheduler_on(snapshot, {"a": list(more.values())}) == (), "it evicts two and four"
    assert victims(snapshot, {"a": list(more.values())}) == ["one", "two"]


def test_the_scheduler_spares_what_started_first_and_of_equals_either() -> None:
    snapshot, on = occupied("a", one=3, two=3)
    one, two = on["a"]
    wide = gated_pod("wide", 4, priority=10)
    first, then, last = (f"2026-01-01T00:00:0{second}Z" for second in range(3))
    for started, expected in ((first, ("a",)), (then, ()), (last, ()), ("", ())):
        pods = [replace(one, start_time=started), replace(two, start_time=then)]
        assert where_scheduler_preempts(snapshot, wide, Running({"a": pods})) == expected, started


def test_the_scheduler_spares_first_what_a_budget_protects() -> None:
    """It evicts the shared pod then, which holds no CPU of a NUMA node."""
    snapshot, on = occupied("a", protected=2, important=2)
    protected, important = on["a"]
    shared = replace(watched_pod("shared", 1, node="a", priority=5), pod=pod("shared", "request:cpu=1"))
    pods = {"a": [protected, replace(important, priority=20), shared]}
    assert scheduler_on(snapshot, pods) == ("a",)
    alone, both = frozenset({protected.uid}), frozenset({protected.uid, shared.uid})
    for budget, expected in (
        (Budget(alone, 0), ()),
        (Budget(alone, 1), ("a",)),
        (Budget(both, 0), ("a",)),  # neither is spared before the other
        (Budget(both, 1), ()),  # which the more important one uses up
        (Budget(frozenset({"another"}), 0), ("a",)),
    ):
        assert scheduler_on(snapshot, pods, budgets=[budget]) == expected, budget


def test_budgets_may_have_the_scheduler_make_room_that_it_would_not_make_without_them() -> None:
    """It evicts the important pod then instead of the protected one. Kept: seed 311127, cluster 633."""
    snapshot, on = occupied("a", first=2, low=2, kept=1, important=2)
    priorities, began = {"low": -10, "kept": 0}, "2026-01-01T00:00:0{}Z"
    pods = [
        replace(pod, priority=priorities.get(pod.name, 5), start_time=began.format(number))
        for number, pod in enumerate(on["a"])
    ]
    kept = next(pod for pod in pods if pod.name == "kept")
    assert scheduler_on(snapshot, {"a": pods}) == ()
    assert where_budgets_decide(snapshot, URGENT, Running({"a": pods})) == ["a"]
    budget = Budget(frozenset({kept.uid}), 0)
    assert scheduler_on(snapshot, {"a": pods}, budgets=[budget]) == ("a",)


def test_budgets_decide_nothing_where_the_scheduler_evicts_nobody_or_all_would_not_do() -> None:
    snapshot, on = occupied("a", one=2, two=2)
    assert where_budgets_decide(snapshot, URGENT, Running(on)) == [], "enough is left in total"
    snapshot, on = occupied("a", one=3, two=3)
    important = [replace(pod, priority=10) for pod in on["a"]]
    assert where_budgets_decide(snapshot, URGENT, Running({"a": important})) == []


def test_more_pods_than_a_budget_allows_violate_it() -> None:
    _, on = occupied("a", one=2, two=2, three=1)
    one, two, _ = (pod.uid for pod in on["a"])
    both = Preemption("a", tuple(on["a"][:2]))
    assert not violates(both, [Budget(frozenset({one, two}), 2), Budget(frozenset({"another"}), 0)])
    assert violates(both, [Budget(frozenset({"another"}), 0), Budget(frozenset({one, two}), 1)])
    assert violates(both, [Budget(frozenset({one}), -1)])
    assert not violates(both, [])


def both_on(snapshot: Snapshot, pods: Mapping[str, Sequence[WatchedPod]], of: WatchedPod, held: WatchedPod) -> Any:
    return where_scheduler_makes_room_for_both(snapshot, of, held, Running(pods))


def test_the_scheduler_may_make_room_for_two_pods_and_for_none_of_them_alone() -> None:
    """Two of the three that leave for the wide one keep half of the other NUMA node. Kept: seed 20261127, cluster 996.

    Beside the other pod, which is nominated, all have to.
    """
    snapshot, on = occupied("a", low=2, second=2, third=1)
    began = "2026-01-01T00:00:0{}Z"
    pods = [replace(pod, start_time=began.format(number)) for number, pod in enumerate(on["a"])]
    pods[0] = replace(pods[0], priority=-10)
    urgent, wide = URGENT, gated_pod("wide", 4, priority=10)
    assert scheduler_on(snapshot, {"a": pods}) == ()
    assert where_scheduler_preempts(snapshot, wide, Running({"a": pods})) == ()
    for one, other in ((urgent, wide), (wide, urgent)):
        assert both_on(snapshot, {"a": pods}, one, other) == ("a",)
        chosen = schedulers_choice(snapshot, one, with_awaited(Running({"a": pods}), other))
        assert chosen is not None
        assert len(chosen.victims) == len(pods)


def test_it_makes_no_room_for_two_where_one_of_them_would_not_be_admitted_or_may_not_go() -> None:
    snapshot, on = occupied("a", low=2, second=2, third=1)
    wide = gated_pod("wide", 4, priority=10)
    assert both_on(snapshot, on, wide, URGENT) == ("a",)
    assert both_on(snapshot, on, wide, replace(wide, name="wider", uid="w")) == (), "totals never suffice"
    equal = [replace(on["a"][0], priority=10), *on["a"][1:]]
    assert both_on(snapshot, {"a": equal}, wide, URGENT) == (), "one does not leave"
    elsewhere = replace(URGENT, placement=Placement(node_selector={"kind": "another"}))
    assert both_on(snapshot, on, wide, elsewhere) == both_on(snapshot, on, elsewhere, wide) == ()


def test_room_for_two_is_room_for_them_in_either_order() -> None:
    """The small one takes the larger NUMA node if it comes first, and the large one is refused."""
    snapshot, on = occupied("a", one=3, stays=2, three=2)
    pods = {"a": [replace(pod, priority=10 if pod.name == "stays" else 0) for pod in on["a"]]}
    small = gated_pod("small", 2, priority=10)
    assert both_on(snapshot, pods, small, URGENT) == both_on(snapshot, pods, URGENT, small) == ()
    assert both_on(snapshot, on, small, gated_pod("wide", 4, priority=10)) == ("a",)


def test_the_scheduler_chooses_the_node_whose_victims_are_least_to_be_missed() -> None:
    first, second = occupied("a", one=3, two=4), occupied("b", three=3, four=4)
    snapshot = snapshot_of(*(each.publications[name].state for each, name in ((first[0], "a"), (second[0], "b"))))
    pods = {"a": [replace(pod, priority=5) for pod in first[1]["a"]], "b": second[1]["b"]}
    chosen = schedulers_choice(snapshot, URGENT, Running(pods))
    assert chosen is not None
    assert (chosen.node, len(chosen.victims)) == ("b", 1)
    assert is_better(chosen, Preemption("a", tuple(pods["a"])))
    assert not is_better(chosen, chosen)
    assert not is_better(None, chosen)
    free = occupied("a", one=2)
    assert schedulers_choice(free[0], URGENT, Running(free[1])) is None


def test_the_scheduler_chooses_the_node_where_fewest_pods_leave_beyond_budgets() -> None:
    """preemption.go:pickOneNodeForPreemption: before it looks at priorities."""
    first, second = occupied("a", protected=3, two=4), occupied("b", three=3, four=4)
    snapshot = snapshot_of(*(each.publications[name].state for each, name in ((first[0], "a"), (second[0], "b"))))
    pods = {"a": first[1]["a"], "b": [replace(pod, priority=5) for pod in second[1]["b"]]}
    budgets = [Budget(frozenset({"protected", "two"}), 0)]
    chosen = schedulers_choice(snapshot, URGENT, Running(pods, budgets=budgets))
    assert chosen is not None
    assert chosen.node == "b"
    unbudgeted = schedulers_choice(snapshot, URGENT, Running(pods))
    assert unbudgeted is not None
    assert unbudgeted.node == "a"


def test_a_pod_that_arrives_before_the_victims_leave_stays_where_it_finds_room_now() -> None:
    """Else the wide one would be let go for the NUMA node where that pod is, and refused. Kept: seed 20261129, 44."""
    snapshot, on = occupied("a", large=3)
    shared = replace(watched_pod("shared", 1, node="a", priority=20), pod=pod("shared", "request:cpu=2"))
    pods, wide = Running({"a": [*on["a"], shared]}), gated_pod("wide", 4, priority=10)
    assert where_scheduler_preempts(snapshot, wide, pods) == ("a",)
    arriving = apply(snapshot, changes.PodAssumed(guaranteed_pod("small", 1), ("a",), 0.0))
    assert where_scheduler_preempts(arriving, wide, pods) == ()
    leaving = Running({"a": [replace(on["a"][0], deleting=True), shared]})
    assert victims(arriving, leaving.by_node, wide) is None, "it has come when that one has left"


def test_nothing_is_carried_out_on_a_node_whose_state_has_become_unknown() -> None:
    snapshot, on = occupied("a", one=3, two=4)
    gone = apply(snapshot, changes.Unreadable("a", "it is malformed"))
    then = carried_out(gone, Running(on), Preemption("a", (on["a"][1],)), gated_pod("wide", 4, priority=10))
    assert then.by_node == {}


def test_once_carried_out_the_pod_is_where_its_victims_were_whoever_leaves_later() -> None:
    """In their place the wide one has no room, and NUMA node 0 never has any. Kept: seed 311127, cluster 515."""
    snapshot, on = occupied("a", stays=1, leaves=2, second=2, third=2)
    stays, *others, third = on["a"]
    narrow, wide = (gated_pod(name, cpus, priority=10) for name, cpus in (("narrow", 2), ("wide", 4)))
    before = Running({"a": [replace(stays, priority=20), *others, third]})
    assert victims(snapshot, before.by_node, wide) == ["second", "third"]
    then = carried_out(snapshot, before, Preemption("a", (third,)), narrow)
    assert victims(snapshot, then.by_node, wide, states=then.states) is None
    assert victims(snapshot, then.by_node, gated_pod("other", 2, priority=10), states=then.states) == ["leaves"]
    assert [pod.name for pod in before.by_node["a"]] == ["stays", "leaves", "second", "third"]


def test_a_pod_that_may_go_to_another_node_does_not_count_as_one_that_comes() -> None:
    """With it the scheduler would evict both pods, without it the one that is of no use. Kept: seed 1, cluster 25."""
    snapshot, on = occupied("a", one=3, two=2)
    one, two = on["a"]
    shared = replace(watched_pod("shared", 1, node="a", priority=5), pod=pod("shared", "request:cpu=500m"))
    pods = {"a": [shared, replace(one, priority=5, start_time="2026-01-01T00:00:01Z"), two]}
    pods["a"][0] = replace(shared, start_time="2026-01-01T00:00:00Z")
    wide = gated_pod("wide", 4, priority=10)
    for nodes, expected in ((("a",), ("a",)), (("a", "b"), ())):
        assumed = apply(snapshot, changes.PodAssumed(guaranteed_pod("other", 3), nodes, 0.0))
        assert where_scheduler_preempts(assumed, wide, Running(pods)) == expected


FIRST = watched_pod("first", 3, narrowed=True)


def seen(snapshot: Snapshot, **fields: Any) -> Snapshot:
    """The watch shows the first pod with these fields."""
    return apply(snapshot, changes.PodUpdated(replace(FIRST, **fields), 0.0))


def test_a_node_is_undecided_while_the_scheduler_evicts_pods_there() -> None:
    """Let go, nominated, bound: until its agent publishes it, the scheduler finds no node for it, or it is gone."""
    before = snapshot_of(*(node_state(name=name) for name in "abc"))
    ungated = apply(before, changes.PodAssumed(FIRST.pod, ("a", "b"), 0.0, displaces=True))
    nominated = seen(ungated, nominated="b")
    bound = seen(nominated, node="b")
    published = apply(bound, changes.Published(running(node_state(name="b"), FIRST.pod), "99"))
    gone = apply(nominated, changes.PodRemoved(FIRST.namespace, FIRST.name, FIRST.uid, 0.0))
    assert undecided_nodes(before) == set()
    assert undecided_nodes(ungated) == {"a", "b"}
    assert undecided_nodes(seen(ungated, unschedulable=True)) == set()
    assert undecided_nodes(nominated) == undecided_nodes(bound) == {"b"}
    assert undecided_nodes(published) == set()
    assert undecided_nodes(apply(gone, changes.TimePassed(UNBOUND_SECONDS))) == set()


def test_the_scheduler_chooses_until_a_victim_leaves_or_the_pod_is_bound() -> None:
    before = snapshot_of(*(node_state(name=name) for name in "ab"))
    ungated = apply(before, changes.PodAssumed(FIRST.pod, ("a",), 0.0, displaces=True))
    stays, leaves = watched_pod("stays", node="a"), watched_pod("leaves", node="a", deleting=True)
    assert is_choosing(ungated, "a", [stays])
    assert not is_choosing(ungated, "a", [stays, leaves])
    assert not is_choosing(ungated, "b", [stays])
    assert not is_choosing(before, "a", [stays])
    assert not is_choosing(seen(ungated, node="a"), "a", [])
    assert not is_choosing(seen(ungated, unschedulable=True), "a", [])


def test_pods_that_find_room_make_no_node_undecided_however_many_come() -> None:
    before = snapshot_of(node_state(name="a"))
    assumed = apply(before, changes.PodAssumed(FIRST.pod, ("a",), 0.0))
    assert undecided_nodes(assumed) == undecided_nodes(seen(assumed, node="a")) == set()


def test_a_nominated_pod_that_nobody_gated_makes_its_node_undecided_too() -> None:
    before = snapshot_of(node_state(name="a"))
    assert undecided_nodes(seen(before)) == set()
    assert undecided_nodes(seen(before, nominated="a")) == {"a"}
    assert undecided_nodes(seen(before, nominated="a", gates=(FIT_GATE,))) == set()


def test_a_pod_that_is_never_bound_makes_no_node_undecided_for_ever() -> None:
    """Its scheduler is away, takes the nomination back, or keeps it; or its deletion was not seen."""
    ungated = apply(snapshot_of(node_state(name="a")), changes.PodAssumed(FIRST.pod, ("a",), 0.0, displaces=True))
    nominated = seen(ungated, nominated="a")
    not_listed = apply(nominated, changes.PodsListed((), "9", 0.0))
    for snapshot, seconds in (
        (ungated, UNBOUND_SECONDS),
        (nominated, NOMINATED_SECONDS),
        (seen(nominated), UNBOUND_SECONDS),
        (not_listed, UNPUBLISHED_SECONDS),
    ):
        assert undecided_nodes(apply(snapshot, changes.TimePassed(seconds - 1.0))) == {"a"}
        assert undecided_nodes(apply(snapshot, changes.TimePassed(seconds))) == set()
    assert undecided_nodes(seen(nominated, unschedulable=True)) == set()
