"""The campaign: what it moves, and everything that keeps it from moving a pod."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from tests.builders import gated_pod, node_state, refused_pod
from tests.reconcile.defragment.model import OLD, SETTINGS, Model, halves

from topomend.cache import changes
from topomend.decide.defragment.moves import Defragmented, Move
from topomend.decide.defragment.search import defragment
from topomend.decide.queue.order import Reservation
from topomend.kube.errors import (
    Conflict,
    DeniedForNow,
    Forbidden,
    NotFound,
    Refused,
    ServerFailed,
    TooManyRequests,
    Unanswered,
)
from topomend.model.pods.evictable_pod import EvictablePod
from topomend.model.pods.pod import Pod
from topomend.reconcile.defragment import campaign as module
from topomend.reconcile.defragment.movable_pods import MovablePods
from topomend.reconcile.defragment.quiet import LOOK_SECONDS, QUIET_SECONDS
from topomend.reconcile.optional_right import OptionalRight
from topomend.reconcile.placement.move_under_way import UnderWay, stand_in_of
from topomend.replay.effort import TurnOver
from topomend.wire.pods.scheduling import MAX_RULES

HOUR = 3600.0
POOL = "karpenter.sh/nodepool"


def wait(model: Model, seconds: float) -> None:
    """Let so much time pass."""
    ends = model.clock.now + seconds
    while model.clock.now < ends:
        model.tick(20.0 if model.move.current is None else 0.5)


def until(model: Model, happens: Callable[[], bool], most_seconds: float = HOUR) -> None:
    """Let time pass until it happens. Fails the test where it does not."""
    ends = model.clock.now + most_seconds
    while not happens():
        assert model.clock.now < ends
        model.tick(20.0 if model.move.current is None else 0.5)


def test_a_pod_is_moved_and_the_one_that_fitted_nowhere_runs() -> None:
    model = halves("a", "b")
    model.until_moved()
    [moved] = model.moves()
    origin = moved.removeprefix("half-")
    assert model.places()["want"] == origin
    assert model.places()[moved] != origin
    assert model.refused == []
    assert model.results() == {"moved": 1}
    assert model.emitted.reasons() == ["Defragmenting", "Defragmenting", "Defragmented"]
    [of_pod, of_owner] = model.emitted.notes("Defragmenting")
    assert of_pod.startswith(f"evicted from {origin} NUMA 1 so that more of what is free is of use: its next pod is to")
    assert of_owner.startswith(f"{moved} was evicted from {origin} NUMA 1")
    assert "and 1 that wait can run; to keep pods where they are, annotate them" in of_owner
    [done] = model.emitted.notes("Defragmented")
    assert done.startswith(f"{moved} was moved: {moved}~")


def unsteered(model: Model) -> None:
    model.labels.clear()


def opted_out(model: Model) -> None:
    model.server.namespaces["ns"]["metadata"]["annotations"] = {"topomend.io/relaunch": "false"}


def opted_out_by_a_wrong_value(model: Model) -> None:
    of_pods(model, lambda content: content["metadata"].update(annotations={"topomend.io/relaunch": "off"}))


def urgent(model: Model) -> None:
    of_pods(model, lambda content: content["spec"].update(priority=1))


def young(model: Model) -> None:
    of_pods(model, lambda content: content["metadata"].update(creationTimestamp="2026-01-01T00:10:00Z"))


def with_local_storage(model: Model) -> None:
    of_pods(model, lambda content: content["spec"].update(volumes=[{"name": "data", "emptyDir": {}}]))


def of_pods(model: Model, change: Callable[[dict[str, Any]], None]) -> None:
    for content in model.server.pods.values():
        change(content)


def incomplete(model: Model) -> None:
    model.server.workloads["half"]["status"]["readyReplicas"] -= 1


def alone(model: Model) -> None:
    model.server.workloads["half"]["spec"]["replicas"] = 1


def budgeted(model: Model, allowed: int = 0) -> None:
    spec = {"selector": {"matchLabels": {"app": "half"}}}
    metadata = {"namespace": "ns", "name": "half"}
    model.server.budgets = [{"metadata": metadata, "spec": spec, "status": {"disruptionsAllowed": allowed}}]


def preempting(model: Model) -> None:
    model.preempting = True


def after_a_refusal(model: Model) -> None:
    """One that comes again and again."""
    before = model.campaign.check

    def check() -> None:
        model.apply(changes.PodRemoved("ns", "refused", "refused", model.clock.now))
        model.apply(changes.PodUpdated(refused_pod("refused", uid="refused"), model.clock.now))
        before()

    model.campaign.check = check  # type: ignore[method-assign]


def comes_and_goes(model: Model, name: str) -> None:
    """A node that is ready, and is not, and is."""
    before = model.campaign.check
    ready = True

    def check() -> None:
        nonlocal ready
        ready = not ready
        model.apply(changes.NodeUpdated(replace(model.store.snapshot.nodes[name], ready=ready)))
        before()

    model.campaign.check = check  # type: ignore[method-assign]


HINDRANCES = (
    unsteered,
    opted_out,
    opted_out_by_a_wrong_value,
    urgent,
    young,
    with_local_storage,
    incomplete,
    alone,
    budgeted,
    preempting,
    after_a_refusal,
)


@pytest.mark.parametrize("hinder", HINDRANCES)
def test_nobody_is_moved_where_a_rule_forbids_it(hinder: Callable[[Model], None]) -> None:
    model = halves("a", "b")
    hinder(model)
    wait(model, 1800.0)
    assert model.moves() == []


def test_nobody_is_moved_unless_asked_for() -> None:
    model = halves("a", "b", settings=replace(SETTINGS, defragment=False))
    wait(model, 1800.0)
    assert model.moves() == []


def test_nobody_is_moved_for_less_than_the_threshold() -> None:
    model = halves("a", "b", settings=replace(SETTINGS, defragment_threshold=100.0))
    assert len(halves_moved(model)) == 1
    model = halves("a", "b", "c", settings=replace(SETTINGS, defragment_threshold=100.0))
    assert len(halves_moved(model)) == 1, "by a third of three nodes"
    model = halves("a", "b", "c", settings=replace(SETTINGS, defragment_threshold=201.0))
    assert halves_moved(model) == [], "four of six CPUs become of use: two thirds of three nodes"


def halves_moved(model: Model) -> list[str]:
    wait(model, 1800.0)
    return model.moves()


def test_a_pool_rests_while_one_of_its_nodes_comes_and_goes() -> None:
    model = halves("a", "b", "c")
    comes_and_goes(model, "c")
    wait(model, 1800.0)
    assert model.moves() == []


def test_while_one_pool_rests_pods_of_another_are_moved() -> None:
    model = Model(*(node_state(name=name) for name in "abcd"))
    for name, pool in zip("abcd", ("one", "one", "two", "two"), strict=True):
        before = model.store.snapshot.nodes[name]
        label = {POOL: pool}
        model.apply(changes.NodeUpdated(replace(before, labels={**before.labels, **label})))
        model.run(f"low-{name}", "cpu=3 memory=1Mi", name)
        model.run(f"half-{name}", "cpu=2 memory=1Mi", name, owner=f"half-{pool}", spec={"nodeSelector": label})
    model.wait("want", "cpu=4 memory=1Mi")
    comes_and_goes(model, "a")
    wait(model, 1800.0)
    assert model.moves() == ["half-c"]


def test_nobody_is_moved_from_or_to_a_node_of_which_numa_nodes_are_reserved() -> None:
    model = halves("a", "b")
    model.reserved = [Reservation(gated_pod("waits", 4), "b", 0b10)]
    wait(model, 1800.0)
    assert model.moves() == []


def test_priorities_up_to_the_setting_are_moved() -> None:
    model = halves("a", "b", settings=replace(SETTINGS, defragment_priority=1))
    urgent(model)
    model.until_moved()
    assert len(model.moves()) == 1


# How many, and how fast


def test_pods_are_moved_at_a_distance_and_no_more_than_a_campaign_may_before_it_rests() -> None:
    names = "abcdefgh"
    settings = replace(SETTINGS, defragment_rate=60.0, defragment_moves=2, defragment_minutes=20.0)
    model = halves(*names, settings=settings)
    wait(model, 2 * HOUR)
    times = [time for time, _ in model.server.evicted]
    distances = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) >= 3
    assert min(distances) >= 60.0, "60 an hour"
    for earlier, later in zip(times, times[2:], strict=False):
        assert later - earlier >= 1200.0, "two, and then a rest"


def test_whoever_begins_to_lead_waits_first() -> None:
    model = halves("a", "b", settings=replace(SETTINGS, defragment_rate=4.0))
    wait(model, 880.0)
    assert model.moves() == []
    wait(model, 120.0)
    assert len(model.moves()) == 1


def test_pods_are_moved_at_the_distance_of_a_slower_rate() -> None:
    model = halves(*"abcdefgh", settings=replace(SETTINGS, defragment_rate=10.0, defragment_moves=8))
    wait(model, 2 * HOUR)
    times = [time for time, _ in model.server.evicted]
    assert len(times) >= 2
    assert min(later - earlier for earlier, later in pairwise(times)) >= 360.0


def test_whoever_leads_again_waits_and_follows_no_move_of_before() -> None:
    model = halves("a", "b", settings=replace(SETTINGS, defragment_rate=1.0))
    wait(model, HOUR - 100.0)
    model.campaign.take_over()
    wait(model, HOUR - 100.0)
    assert model.moves() == []
    model.controllers_rest = True
    until_evicted(model)
    model.campaign.take_over()
    model.tick()
    assert model.move.current is None


def test_whoever_leads_again_knows_no_node() -> None:
    """Another one has led since, and any of them may have changed."""
    model = halves("a", "b")
    wait(model, QUIET_SECONDS - 100.0)
    model.campaign.take_over()
    wait(model, QUIET_SECONDS - 20.0)
    assert model.moves() == []
    wait(model, 120.0)
    assert len(model.moves()) == 1


def test_the_next_pod_is_not_moved_within_the_hour_though_it_seems_old() -> None:
    """By clocks that differ: the API server's time is that of its creation."""
    model = halves("a", "b", "c")
    model.clock_ahead = OLD
    model.until_moved()
    assert model.places() == {**model.places(), "half-a": "b", "want": "a"}
    model.end(("ns", "half-b"))
    model.wait("more", "cpu=4 memory=1Mi")
    wait(model, HOUR - 100.0)
    assert model.moves() == ["half-a", "half-c"]


def test_once_a_campaign_has_had_its_moves_nothing_is_listed_until_the_next_one() -> None:
    model = halves("a", "b", "c", "d", settings=replace(SETTINGS, defragment_moves=1, defragment_minutes=20.0))
    model.until_moved()
    listed = len(model.server.lists)
    wait(model, 1100.0)
    assert len(model.server.lists) == listed
    wait(model, 200.0)
    assert len(model.server.lists) > listed


def test_while_others_act_nothing_is_listed() -> None:
    model = halves("a", "b")
    model.preempting = True
    wait(model, 1800.0)
    assert model.server.lists == []


@pytest.mark.parametrize("searches", [0, 1])
def test_a_search_that_takes_too_long_ends_the_campaign(
    searches: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first search, or the second one by which its move is proven again."""
    model, done, before = halves("a", "b"), list[float](), defragment

    def search(*asked: Any, **effort: Any) -> Defragmented:
        done.append(model.clock.now)
        if len(done) > searches:
            raise TurnOver
        return before(*asked, **effort)

    monkeypatch.setattr(module, "defragment", search)
    until(model, lambda: len(done) > searches)
    wait(model, 280.0)
    assert len(done) == searches + 1, "five minutes of rest"
    assert "the search takes more than 20 s of work" in caplog.text
    assert model.server.asked == []


# Nothing in vain


def at_last_look(model: Model, act: Callable[[], None]) -> None:
    """Have something happen once, between the proof of a move and the eviction."""

    def look() -> None:
        model.server.last_look = lambda: None
        act()

    model.server.last_look = look


def test_a_pod_whose_place_is_taken_at_the_last_moment_stays() -> None:
    model = halves("a", "b")

    def fill() -> None:
        for name in "ab":
            model.run(f"stranger-{name}", "cpu=2 memory=1Mi", name)

    at_last_look(model, fill)
    wait(model, 1800.0)
    assert model.moves() == []


def test_a_pod_whose_controller_is_scaled_at_the_last_moment_stays() -> None:
    model = halves("a", "b")
    model.server.last_look = lambda: model.server.workloads["half"]["spec"].update(replicas=3)
    wait(model, 1800.0)
    assert model.moves() == []


def test_a_pod_whose_target_is_used_up_in_total_at_the_last_moment_stays() -> None:
    """By pods that hold nothing, which no agent publishes."""
    model = halves("a", "b")

    def fill() -> None:
        for name in "ab":
            model.bind_unseen(f"stranger-{name}", "request:cpu=2", name)

    at_last_look(model, fill)
    wait(model, 1800.0)
    assert model.moves() == []


def test_no_pod_is_sent_to_a_node_that_was_not_looked_at_once_more() -> None:
    """The best target is full by then, and the next best one is a node that the first search did not name."""
    model, looked = halves(*"abcde"), list[float]()

    def fill() -> None:
        looked.append(model.clock.now)
        for name in "bcd":
            model.run(f"stranger-{name}", "cpu=2 memory=1Mi", name)

    at_last_look(model, fill)
    until(model, lambda: bool(looked))
    assert model.moves() == []


def test_a_pod_whose_move_is_not_proven_again_is_left_alone_for_a_while() -> None:
    """A budget keeps all of them, which the first listing does not show yet."""
    model, looks = halves("a", "b"), set[float]()

    def keep() -> None:
        looks.add(model.clock.now)
        budgeted(model)

    model.server.last_look = keep
    ends = model.clock.now + 3000.0
    while model.clock.now < ends:
        model.server.budgets = []
        model.tick(20.0)
    assert model.server.asked == []
    assert 2 <= len(looks) <= 10, "two pods, each once in ten minutes"


def filled(model: Model) -> None:
    model.run("stranger", "cpu=2 memory=1Mi", "c")


def used_in_total(model: Model) -> None:
    model.bind_unseen("stranger", "request:cpu=2", "c")
    model.node_pods.list("c")


def without_agent(model: Model) -> None:
    model.apply(changes.Unpublished("c"))


def cordoned(model: Model) -> None:
    model.apply(changes.NodeUpdated(replace(model.store.snapshot.nodes["c"], unschedulable=True)))


@pytest.mark.parametrize("change", [filled, used_in_total, without_agent, cordoned])
def test_a_pod_stays_if_a_node_where_it_may_come_to_changes_once_the_move_is_proven(
    change: Callable[[Model], None],
) -> None:
    """The target is b, and kube-scheduler may choose c."""
    model, proven = halves("a", "b", "c"), list[float]()

    def look() -> None:
        model.last_question = last_question

    def last_question() -> None:
        proven.append(model.clock.now)
        change(model)

    at_last_look(model, look)
    until(model, lambda: bool(proven))
    assert model.server.asked == []


def test_a_pod_stays_if_others_are_evicted_for_a_pod_at_the_last_moment() -> None:
    model = halves("a", "b")

    def preempt() -> None:
        model.preempting = True

    model.server.last_look = preempt
    wait(model, 1800.0)
    assert model.moves() == []


def test_a_pod_stays_if_its_target_changes_once_the_move_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    model, before = halves("a", "b"), stand_in_of

    def late(move: Move) -> Pod:
        model.publish()
        target = move.target.node
        model.apply(changes.PodAssumed(before(move), (target,), model.clock.now))
        return replace(before(move), name="other/moved")

    monkeypatch.setattr(module, "stand_in_of", late)
    wait(model, 1800.0)
    assert model.moves() == []


def test_a_pod_that_the_api_server_keeps_is_left_alone_and_another_is_moved() -> None:
    model, kept = halves("a", "b"), list[str]()

    def fail() -> None:
        if not kept:
            kept.append("once")
            raise Forbidden(403, "Forbidden", "a policy keeps it")

    model.server.fail = fail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OptionalRight, "_is_granted", lambda _: True)
        model.until_moved()
    assert len(model.moves()) == 1
    assert model.results() == {"kept": 1, "moved": 1}


def test_a_pod_that_the_api_server_keeps_is_tried_again_after_a_while() -> None:
    model = halves("a", "b")

    def fail() -> None:
        raise DeniedForNow(429, "TooManyRequests", "a webhook keeps it")

    model.server.fail = fail
    wait(model, 3 * HOUR)
    for name in ("half-a", "half-b"):
        times = [time for time, asked in model.server.asked if asked == name]
        assert len(times) > 2
        assert min(later - earlier for earlier, later in pairwise(times)) >= module.KEPT_SECONDS
    assert model.results() == {"kept": len(model.server.asked)}


@pytest.mark.parametrize("error", [NotFound, Conflict, DeniedForNow])
def test_where_the_pod_is_gone_or_kept_its_place_is_held_no_longer(error: type[Refused]) -> None:
    model = halves("a", "b")

    def fail() -> None:
        raise error(400, "Reason", "not evicted")

    model.server.fail = fail
    until(model, lambda: bool(model.server.asked))
    assert model.move.current is None
    assert model.held_places() == []


def test_without_the_right_nothing_is_tried_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    model, tried = halves("a", "b"), list[float]()

    def fail() -> None:
        tried.append(model.clock.now)
        raise Forbidden(403, "Forbidden", "may not evict")

    model.server.fail = fail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OptionalRight, "_is_granted", lambda _: False)
        wait(model, 1800.0)
    assert 2 <= len(tried) <= 6
    assert "install the component defragment" in caplog.text
    assert model.move.current is None


def test_an_api_server_that_is_overloaded_is_left_alone() -> None:
    model = halves("a", "b")

    def fail() -> None:
        raise TooManyRequests(429, "TooManyRequests", "later")

    model.server.fail = fail
    with pytest.raises(TooManyRequests):
        wait(model, 1800.0)
    assert model.move.current is None
    assert model.held_places() == []


@pytest.mark.parametrize("is_evicted", [True, False])
def test_after_an_eviction_without_an_answer_nobody_is_evicted_until_it_is_known(*, is_evicted: bool) -> None:
    model = halves("a", "b")

    def fail() -> None:
        model.server.fail = lambda: None
        if is_evicted:
            current = model.move.current
            assert current
            model.server.evict(current.pod.name, "ns", uid=current.pod.uid)
        raise Unanswered("no answer")

    model.server.fail = fail
    with pytest.raises(Unanswered):
        wait(model, 1800.0)
    model.create_next()
    until(model, lambda: model.move.current is None)
    assert model.results() == ({"moved": 1} if is_evicted else {"kept": 1})


def test_after_an_eviction_without_an_answer_the_next_one_keeps_its_distance() -> None:
    model = halves(*"abcdefgh", settings=replace(SETTINGS, defragment_rate=10.0, defragment_moves=8))

    def fail() -> None:
        model.server.fail = lambda: None
        current = model.move.current
        assert current
        model.server.evict(current.pod.name, "ns", uid=current.pod.uid)
        raise Unanswered("no answer")

    model.server.fail = fail
    with pytest.raises(Unanswered):
        wait(model, 1800.0)
    model.create_next()
    wait(model, HOUR)
    times = [time for time, _ in model.server.evicted]
    assert len(times) >= 2
    assert min(later - earlier for earlier, later in pairwise(times)) >= 360.0


def test_a_pod_that_an_eviction_without_an_answer_left_is_tried_again_after_a_while() -> None:
    model = halves("a", "b")

    def fail() -> None:
        raise Unanswered("no answer")

    model.server.fail = fail
    ends = model.clock.now + 3 * HOUR
    while model.clock.now < ends:
        with suppress(Unanswered):
            model.tick(20.0)
    for name in ("half-a", "half-b"):
        times = [time for time, asked in model.server.asked if asked == name]
        assert len(times) > 2
        assert min(later - earlier for earlier, later in pairwise(times)) >= module.KEPT_SECONDS


def test_a_pod_that_has_not_ended_by_then_was_not_kept() -> None:
    model = halves("a", "b")
    model.controllers_rest = True
    until_evicted(model)
    current = model.move.current
    assert current
    evicted = model.server.evicted[0][1]
    model.server.pods["ns", current.pod.name] = evicted
    model.server.is_quick = True
    model.clock.advance(module.COMES_SECONDS + 31.0)
    model.campaign.check()
    assert model.results() == {"lost": 1}


def test_a_pod_of_the_evicted_ones_name_that_waits_for_nobody_is_not_the_evicted_one() -> None:
    """As of a StatefulSet whose new pods are not gated any more."""
    model = halves("a", "b")
    model.controllers_rest = True
    until_evicted(model)
    [(_, evicted)] = model.server.evicted
    metadata = {key: value for key, value in evicted["metadata"].items() if key != "deletionTimestamp"}
    model.server.pods["ns", metadata["name"]] = {**evicted, "metadata": {**metadata, "uid": "another"}}
    model.clock.advance(module.COMES_SECONDS + 31.0)
    model.campaign.check()
    assert model.results() == {"lost": 1}


def test_a_next_pod_may_come_once_the_grace_period_is_over() -> None:
    model = halves("a", "b")
    of_pods(model, lambda content: content["spec"].update(terminationGracePeriodSeconds=900))
    model.controllers_rest = True
    until_evicted(model)
    wait(model, 1000.0)
    assert model.results() == {}
    wait(model, 60.0)
    assert model.results() == {"lost": 1}


# The place


def test_the_place_is_not_held_beside_the_next_pod() -> None:
    model = halves("a", "b")
    next_pod(model)["status"]["phase"] = "Pending"
    assert model.held_places() == []
    model.tick(module.HOLD_SECONDS + 1.0)
    assert model.move.current
    assert model.held_places() == []


def test_the_place_is_held_until_the_next_pod_comes() -> None:
    """Its controller takes its time, as that of a StatefulSet; a pod that would fit there comes first."""
    model = halves("a", "b")
    model.controllers_rest = True
    until_evicted(model)
    current = model.move.current
    assert current
    model.wait("other", "cpu=2 memory=1Mi", spec={"nodeSelector": {"kubernetes.io/hostname": current.move.target.node}})
    for _ in range(90):
        model.tick()
    assert model.places()["other"] == ""
    next_comes(model)
    model.place_waiting()
    model.until_moved(100.0)
    assert model.results() == {"moved": 1}


def next_comes(model: Model) -> None:
    """The controllers go on: they know the pod that they have to make again by what has ended."""
    model.controllers_rest = False
    model.server.pods["ns", "gone"] = model.server.evicted[0][1]
    model.create_next()
    del model.server.pods["ns", "gone"]


def next_pod(model: Model) -> dict[str, Any]:
    """The next pod of the moved one, which has just been bound."""
    until_evicted(model)
    [found] = [each for (_, name), each in model.server.pods.items() if "~" in name]
    return found


def test_where_the_next_pod_fails_the_move_is_lost() -> None:
    model = halves("a", "b")
    next_pod(model)["status"]["phase"] = "Failed"
    model.tick()
    assert model.results() == {"lost": 1}


def test_where_the_next_pod_does_not_run_in_time_the_move_is_lost() -> None:
    model = halves("a", "b")
    next_pod(model)["status"]["phase"] = "Pending"
    model.tick()
    assert model.results() == {}
    model.tick(module.COMES_SECONDS + module.RUNS_SECONDS + 60.0)
    assert model.results() == {"lost": 1}


TOO_MANY = [{"key": f"key-{number}", "operator": "Exists"} for number in range(MAX_RULES + 1)]
"""Tolerations, which whoever may change a pod adds at any time."""


def test_where_the_next_pod_becomes_unreadable_the_move_is_lost_and_others_follow_once_the_pool_has_rested() -> None:
    model = halves(*"abcd")
    next_pod(model)["spec"]["tolerations"] = TOO_MANY
    model.tick()
    assert (model.move.current, model.held_places(), model.results()) == (None, [], {"lost": 1})
    [why] = model.emitted.notes("DefragmentationFailed")
    assert "what became of it cannot be read: spec.tolerations: more than 1000 values" in why
    wait(model, 1.2 * HOUR)
    assert len(model.moves()) == 2


def test_where_an_unreadable_pod_comes_under_the_name_of_the_moved_one_the_move_is_lost() -> None:
    """As of a StatefulSet: no worker has met it."""
    model = halves("a", "b")
    model.controllers_rest = True
    until_evicted(model)
    [(_, evicted)] = model.server.evicted
    spec = {**evicted["spec"], "tolerations": TOO_MANY}
    model.server.pods["ns", evicted["metadata"]["name"]] = {**evicted, "spec": spec}
    model.clock.advance(module.COMES_SECONDS + 31.0)
    model.campaign.check()
    assert (model.move.current, model.results()) == (None, {"lost": 1})


def test_where_the_next_pod_is_refused_until_it_has_to_run_the_move_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    model = halves("a", "b")
    next_pod(model)["status"]["phase"] = "Pending"
    model.server.is_quick = True

    def get(*_: Any, **__: Any) -> Any:
        raise ServerFailed(500, "InternalError", "it cannot be decrypted")

    monkeypatch.setattr(model.server, "get", get)
    with pytest.raises(ServerFailed):
        model.campaign.check()
    assert model.move.current
    model.clock.advance(model.move.current.runs_by - model.clock.now + 1.0)
    model.campaign.check()
    assert model.results() == {"lost": 1}
    assert model.held_places() == []


@pytest.mark.parametrize("fields", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"uid": "another"}], ids=str)
def test_where_the_next_pod_is_gone_the_one_after_it_counts(fields: dict[str, str]) -> None:
    model = halves("a", "b")
    next_pod(model)["metadata"].update(fields)
    model.server.is_quick = True
    model.campaign.check()
    current = model.move.current
    assert current
    assert current.next_pod is None


def test_a_pod_that_its_controller_adds_while_the_eviction_is_under_way_gets_the_place_and_nobody_is_refused() -> None:
    """A worker meets it gated before there is a next pod, and no field of it tells one from the other."""
    model = halves("a", "b", "c")
    targets: list[str] = []

    def scale_up() -> None:
        targets.append(scale_up_now(model))
        model.server.fail = lambda: None

    model.server.fail = scale_up
    until_evicted(model)
    for _ in range(60):
        model.tick()
    assert [model.places()["more"]] == targets
    assert model.places()[model.moves()[0]] != ""
    assert model.refused == []


def scale_up_now(model: Model) -> str:
    """The controller of the pod to be moved adds one, which a worker meets at once. The target of the move."""
    current = model.move.current
    assert current
    model.scale_up("more", "half")
    model.place_waiting()
    return current.move.target.node


@pytest.mark.parametrize("is_seen", [True, False], ids=["its controller says so", "its controller does not say so yet"])
def test_where_a_controller_is_scaled_up_once_the_place_is_held_nobody_is_evicted(
    *, is_seen: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The new pod finds the place held, as everybody does, and goes to the other node that has room for it."""
    caplog.set_level(logging.INFO)
    model, before = halves("a", "b", "c"), MovablePods.why_stays
    targets: list[str] = []

    def why_stays(pods: MovablePods, pod: EvictablePod) -> str:
        why = before(pods, pod)
        if not targets:
            targets.append(scale_up_now(model))
        return before(pods, pod) if is_seen else why

    monkeypatch.setattr(MovablePods, "why_stays", why_stays)
    until(model, lambda: bool(targets))
    assert model.server.asked == []
    assert (model.move.current, model.held_places()) == (None, [])
    assert model.places()["more"] not in {"", *targets}
    assert model.results() == {"kept": 1}
    assert "is not moved: its controller is being deleted, scaled or rolled out" in caplog.text


def test_the_place_is_held_no_longer_where_the_controller_cannot_be_read_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = halves("a", "b")

    def why_stays(*_: object) -> str:
        raise Unanswered("no answer")

    monkeypatch.setattr(MovablePods, "why_stays", why_stays)
    with pytest.raises(Unanswered):
        wait(model, 1800.0)
    assert model.server.asked == []
    assert (model.move.current, model.held_places()) == (None, [])


def until_evicted(model: Model) -> None:
    until(model, lambda: bool(model.server.evicted))


def test_where_no_next_pod_comes_the_pool_rests_and_an_event_says_so() -> None:
    model = halves("a", "b", "c", "d")
    model.controllers_rest = True
    until_evicted(model)
    wait(model, 300.0)
    assert model.results() == {"lost": 1}
    [why] = model.emitted.notes("DefragmentationFailed")
    assert "no next pod came that waits for topomend" in why
    assert "no pod of pool none is moved for 60 minutes" in why
    wait(model, HOUR - 400.0)
    assert len(model.moves()) == 1
    model.server.workloads["half"]["status"].update(replicas=4, readyReplicas=4)
    wait(model, 500.0)
    assert len(model.moves()) == 2


def with_a_place_taken() -> tuple[Model, UnderWay]:
    """The next pod has not come yet; its place has a pod that no gate holds, which topomend does not see."""
    model = halves("a", "b")
    of_pods(model, lambda content: content["spec"].update(schedulingGates=[]) if "want" in str(content) else None)
    model.apply(changes.PodRemoved("ns", "want", "", model.clock.now))
    model.server.pods.pop(("ns", "want"))
    model.run("typical", "cpu=1 memory=1Mi", "a")
    model.wait("want", "cpu=4 memory=1Mi", spec={"nodeSelector": {"kubernetes.io/hostname": "b"}})
    model.controllers_rest = True
    until_evicted(model)
    current = model.move.current
    assert current
    model.run("stranger", "cpu=2 memory=1Mi", current.move.target.node)
    return model, current


def test_a_next_pod_whose_place_is_taken_goes_back_and_the_pool_rests() -> None:
    model, current = with_a_place_taken()
    next_comes(model)
    model.until_moved(100.0)
    assert model.refused == []
    assert model.places()[model.moves()[0]] == current.move.origin.node
    assert model.results() == {"elsewhere": 1}


def test_a_next_pod_whose_place_is_taken_waits_for_it_for_a_while_and_then_nothing_is_held_for_it() -> None:
    model, current = with_a_place_taken()
    origin = model.store.snapshot.nodes[current.move.origin.node]
    model.apply(changes.NodeUpdated(replace(origin, unschedulable=True)))
    next_comes(model)
    model.place_waiting()
    assert len(model.held_places()) == 1
    began = model.clock.now
    until(model, lambda: model.move.current is None or not model.move.current.steered)
    assert model.move.current
    assert model.clock.now - began > module.PLACED_SECONDS
    assert model.held_places() == []


# What becomes of it


class LastOfAll(Random):
    """A scheduler that takes the last node that it may."""

    def choice(self, seq: Sequence[Any]) -> Any:  # type: ignore[override]
        return seq[-1]


def test_a_next_pod_on_another_node_that_the_scheduler_might_choose_was_moved() -> None:
    model = halves("a", "b", "c", random=LastOfAll())
    model.until_moved()
    [moved] = model.moves()
    assert (moved, model.places()[moved]) == ("half-a", "c")
    assert model.results() == {"moved": 1}


def test_a_next_pod_on_another_numa_node_of_its_target_came_elsewhere() -> None:
    model = halves("a", "b")
    next_pod(model)
    current = model.move.current
    assert current
    move = replace(current.move, target=replace(current.move.target, numa_nodes=0b01))
    model.move.begin(replace(current, move=move))
    model.tick()
    assert model.results() == {"elsewhere": 1}
    [why] = model.emitted.notes("DefragmentationFailed")
    assert "to another NUMA node" in why


def test_a_next_pod_that_runs_may_be_published_a_little_later() -> None:
    model = halves("a", "b")
    model.controllers_rest = True
    until_evicted(model)
    published, model.publish = model.publish, lambda: None  # type: ignore[method-assign]
    next_comes(model)
    model.place_waiting()
    wait(model, module.PUBLISHED_SECONDS - 5.0)
    assert model.results() == {}
    published()
    model.tick()
    assert model.results() == {"moved": 1}


def test_a_next_pod_that_runs_and_is_never_published_came_elsewhere() -> None:
    model = halves("a", "b")
    model.controllers_rest = True
    until_evicted(model)
    model.publish = lambda: None  # type: ignore[method-assign]
    next_comes(model)
    model.place_waiting()
    wait(model, module.PUBLISHED_SECONDS + 5.0)
    assert model.results() == {"elsewhere": 1}
    [why] = model.emitted.notes("DefragmentationFailed")
    assert "whose agent does not publish it" in why


def test_a_pool_rests_longer_after_each_failure_until_a_move_succeeds() -> None:
    model = halves(*"abcdefgh")
    for fails in (True, True, False, True):
        evicted = len(model.moves())
        until(model, lambda: len(model.moves()) > evicted, 3 * HOUR)  # noqa: B023
        current = model.move.current
        assert current
        assert current.next_pod
        if fails:
            model.server.pods["ns", current.next_pod[0]]["status"]["phase"] = "Failed"
        model.tick()
        assert model.move.current is None
    rests = [note.rpartition("moved for ")[2] for note in model.emitted.notes("DefragmentationFailed")]
    assert rests == ["60 minutes", "120 minutes", "60 minutes"]
    assert model.results() == {"lost": 3, "moved": 1}


def test_pods_that_came_lately_may_be_moved_once_they_are_old() -> None:
    model = halves("a", "b")
    young(model)
    wait(model, OLD)
    assert len(model.moves()) == 1


def test_changes_are_looked_for_more_often_than_a_pool_rests() -> None:
    assert LOOK_SECONDS < QUIET_SECONDS
