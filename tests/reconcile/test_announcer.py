"""The object, reason and text of each Event. A list records the events instead of posting them."""

from dataclasses import replace

import pytest
from tests.builders import gated_pod, refused_pod
from tests.reconcile.emitted import Emitted

from topomend.decide.plan import Explained, ReplayMismatch
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.model.relaunch_record import Relaunch
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE

RECORD = Relaunch("ns", "p-1", "p", "p", "a", "TopologyAffinityError", "", 2, {}, candidates=("b", "c"), uid="r")


@pytest.fixture
def emitted() -> Emitted:
    return Emitted()


@pytest.mark.parametrize(
    ("explanation", "reason"),
    [(Explained("why", ("cpu",)), "TopologyRefusalExplained"), (ReplayMismatch("why"), "ReplayMismatch")],
)
def test_a_refusal_is_explained_on_the_pod_its_owner_and_its_record(
    explanation: Explained | ReplayMismatch, reason: str, emitted: Emitted
) -> None:
    owned = refused_pod(owner=Owner("ReplicaSet", "web", "9", "apps/v1"))
    emitted.announcer.refusal_explained(owned, explanation, None, RECORD)
    assert emitted.events == [
        (name, "Warning", reason, "Admit", "why") for name in ("Pod/p", "ReplicaSet/web", "Relaunch/p-1")
    ]


def test_a_bare_pod_without_a_record_has_the_only_event(emitted: Emitted) -> None:
    emitted.announcer.refusal_explained(refused_pod(), Explained("why", ("cpu",)), None, None)
    assert [name for name, *_ in emitted.events] == ["Pod/p"]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (gated_pod(gates=(FIT_GATE,)), ("Warning", "UngateDeferred", "Ungate")),
        (gated_pod(gates=(RELAUNCH_GATE,)), ("Warning", "RelaunchDeferred", "Relaunch")),
        (refused_pod(), ("Warning", "RelaunchDeferred", "Relaunch")),
    ],
    ids=["gated at its creation", "a replacement", "refused"],
)
def test_a_pod_that_no_node_admits_is_deferred_by_what_would_be_done_with_it(
    pod: WatchedPod, expected: tuple[str, str, str], emitted: Emitted
) -> None:
    emitted.announcer.unschedulable(pod, "no node admits it now")
    assert emitted.events == [("Pod/p", *expected, "no node admits it now; retried when a node changes")]


WEB = Owner("ReplicaSet", "web", "9", "apps/v1")


def test_a_pod_that_waits_is_told_of_on_its_owner_too_and_each_event_refers_to_the_other(emitted: Emitted) -> None:
    emitted.announcer.unschedulable(gated_pod(owner=WEB), "no node admits it now", "closest: a lacks 1 of 3 cpu")
    note = "no node admits it now; closest: a lacks 1 of 3 cpu; retried when a node changes"
    assert emitted.events == [
        ("Pod/p", "Warning", "UngateDeferred", "Ungate", note),
        ("ReplicaSet/web", "Warning", "UngateDeferred", "Ungate", f"p waits: {note}"),
    ]
    assert [fact for fact, _ in emitted.facts] == ["no node admits it now"] * 2, "figures make no new event"
    assert [related.name for _, related in emitted.facts if related] == ["web", "p"]


def test_a_pod_that_waits_for_its_turn_asks_nobody_to_act(emitted: Emitted) -> None:
    emitted.announcer.waits_for_turn(gated_pod(owner=WEB), "a NUMA 1 admits it, but is reserved for wide")
    [(name, kind, reason, _, note)] = emitted.events
    assert (name, kind, reason) == ("Pod/p", "Normal", "WaitingForTurn")
    assert note.startswith("a NUMA 1 admits it, but is reserved for wide; ")


def test_of_many_pods_that_one_node_refuses_for_the_same_the_owner_is_told_once(emitted: Emitted) -> None:
    for name in ("p", "q"):
        pod = refused_pod(name, owner=WEB)
        emitted.announcer.refusal_explained(pod, Explained(f"a refuses {name}", ("cpu",)), None, None)
    of_owner = [fact for event, (fact, _) in zip(emitted.events, emitted.facts, strict=True) if "Set" in event[0]]
    assert len(of_owner) == 2
    assert len(set(of_owner)) == 1
    assert emitted.facts[0][0] == "TopologyRefusalExplained", "a pod is refused once"


def test_what_an_observer_would_do_is_told_once_for_all_pods_of_an_owner_and_on_every_other_pod(
    emitted: Emitted,
) -> None:
    for pod in (refused_pod("p", owner=WEB), refused_pod("q", owner=WEB), refused_pod(), refused_pod(mirror=True)):
        emitted.announcer.observed(pod, "it would wait")
    assert [name for name, *_ in emitted.events] == ["ReplicaSet/web", "ReplicaSet/web", "Pod/p", "Pod/p"]
    (of_p, of_q, *_) = zip(emitted.events, (fact for fact, _ in emitted.facts), strict=True)
    assert of_p == of_q, "the recorder posts the same event once"
    assert [related.name for _, related in emitted.facts if related] == ["p", "q"]


def test_a_relaunch_names_both_pods_the_nodes_and_the_attempt_on_pod_and_record(emitted: Emitted) -> None:
    emitted.announcer.relaunched(gated_pod("p-r2"), RECORD, "", 5)
    note = "replaces ns/p refused by a; ungated for b, c (attempt 2 of 5)"
    assert emitted.events == [(name, "Normal", "Relaunched", "Relaunch", note) for name in ("Pod/p-r2", "Relaunch/p-1")]


def test_the_relaunch_of_a_pod_that_no_scheduler_bound_names_no_node_that_refused_it(emitted: Emitted) -> None:
    record = replace(RECORD, refused_by="scheduler", reason="Unschedulable")
    emitted.announcer.relaunched(gated_pod(), record, "b NUMA 0 admits it", 5)
    note = "replaces ns/p, which no scheduler bound to its nodes; b NUMA 0 admits it"
    assert {event[-1] for event in emitted.events} == {note}


def test_a_pod_that_is_not_scheduled_is_reported_what_to_do(emitted: Emitted) -> None:
    emitted.announcer.not_scheduled(gated_pod(), ["b", "c"])
    [(_, kind, reason, _, note)] = emitted.events
    assert (kind, reason) == ("Warning", "NotScheduled")
    assert note.startswith("Ungated for nodes b, c but not scheduled: ")
    assert "See `kubectl describe pod p`. " in note
    assert "topomend replaces the pod when other nodes admit it. " in note
    assert note.endswith("If it opted out, or its Job may have no more failures, delete and recreate it.")
