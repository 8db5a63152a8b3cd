"""A diagnosis asks only the nodes that have changed, and says what one that asks every node says.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import gc
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from tests.builders import applied, guaranteed_pod, node, node_state, pod, snapshot_of
from tests.decide.changing_cluster import NODES, ChangingCluster
from tests.seeds import SEED, cases

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis import survey
from topomend.decide.diagnosis.feasibility import Diagnosis, diagnose
from topomend.decide.diagnosis.node_status import (
    NodeStatus,
    Question,
    RejectedBy,
    backing_off,
    just_refused,
    question_about,
    status_of,
)
from topomend.decide.diagnosis.survey import Surveys
from topomend.explain.explanation import explain
from topomend.model.nodes.node import Node
from topomend.model.pods.scheduling import Placement, WatchedPod
from topomend.replay.admission import admit
from topomend.replay.effort import Overspent, Shares, TurnOver

Answers = tuple[tuple[NodeStatus, str], ...]


def answers_of(diagnosis: Diagnosis) -> tuple[Answers, Answers]:
    """All answers of a diagnosis, candidates and others, each with its explanation."""
    candidates = tuple((status, diagnosis.explanation(status)) for status in diagnosis.candidates)
    return candidates, tuple((status, diagnosis.explanation(status)) for status in diagnosis.rejected)


def answers_of_every_node(
    seen: Snapshot, asked: WatchedPod, rejected_by: RejectedBy | None, excluded: Mapping[str, NodeStatus]
) -> tuple[Answers, Answers]:
    """The same by nodes that all are asked, and by none of which any answer is remembered."""
    snapshot = replace(
        seen,
        nodes={name: replace(node) for name, node in seen.nodes.items()},
        publications={
            name: replace(publication, state=replace(publication.state))
            for name, publication in seen.publications.items()
        },
    )
    question = question_about(asked.pod, asked.placement)
    answers = []
    for its_node in snapshot.nodes.values():
        refused = rejected_by and rejected_by.node == its_node.name
        own = refused and rejected_by and just_refused(snapshot.publications.get(its_node.name), rejected_by)
        answers.append(excluded.get(its_node.name) or own or status_of(snapshot, its_node, question))

    def explanation(status: NodeStatus) -> str:
        if status.admits:
            return f"on {status.place}"
        if status.why:
            return status.why
        state = snapshot.publications[status.node].state_with_assumed()
        return explain(admit(state, asked.pod)[0], state, asked.pod)

    last = rejected_by.node if rejected_by else ""
    yes = sorted(
        (status for status in answers if status.admits), key=lambda status: (status.node == last, status.score)
    )
    no = sorted(
        (status for status in answers if not status.admits), key=lambda status: (not status.is_refusal, status.node)
    )
    return tuple((status, explanation(status)) for status in yes), tuple((status, explanation(status)) for status in no)


@pytest.mark.parametrize("seed", [SEED])
def test_a_diagnosis_after_random_changes_is_what_every_node_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)

    def overspending(snapshot: Snapshot, node: Node, question: Question) -> NodeStatus:
        if random.random() < 0.02:
            raise Overspent(node.name)
        return status_of(snapshot, node, question)

    monkeypatch.setattr(survey, "status_of", overspending)
    cluster, surveys = ChangingCluster(random), Surveys()
    earlier = [cluster.snapshot]
    for _ in range(cases(500, 1500)):
        for _ in range(random.choice((0, 1, 1, 2, 10))):
            cluster.change()
        earlier = [*earlier[-5:], cluster.snapshot]
        asked = cluster.asked()
        snapshot = random.choice((cluster.snapshot, cluster.snapshot, random.choice(earlier)))
        if random.random() < 0.5:
            snapshot = applied(changes.PodForgotten(asked.namespace, asked.name), to=snapshot)
        version = random.choice((None, "11", "9999999"))
        rejected_by = random.choice((None, None, RejectedBy(random.choice(NODES), version)))
        excluded = {name: backing_off(name) for name in random.sample(NODES, random.choice((0, 0, 2)))}
        try:
            diagnosis = diagnose(snapshot, asked.pod, asked.placement, rejected_by, excluded, surveys=surveys)
        except Overspent:
            continue
        assert answers_of(diagnosis) == answers_of_every_node(snapshot, asked, rejected_by, excluded)


def test_only_the_nodes_that_have_changed_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, surveys = snapshot_of(*(node_state(name=name) for name in NODES)), Surveys()
    diagnose(snapshot, guaranteed_pod("first"), Placement(), surveys=surveys)
    asked: list[str] = []

    def listening(snapshot: Snapshot, node: Node, question: Question) -> NodeStatus:
        asked.append(node.name)
        return status_of(snapshot, node, question)

    monkeypatch.setattr(survey, "status_of", listening)
    diagnose(snapshot, guaranteed_pod("second"), Placement(), surveys=surveys)
    assert asked == []
    changed = applied(
        changes.Published(node_state(name="n1", pods=[guaranteed_pod("q")]), "9"),
        changes.NodeUpdated(node("n3", unschedulable=True)),
        changes.PodAssumed(guaranteed_pod("r"), ("n5", "n6"), 1.0),
        to=snapshot,
    )
    diagnose(changed, guaranteed_pod("third"), Placement(), surveys=surveys)
    assert asked == ["n1", "n3", "n5", "n6"]


def test_nothing_is_remembered_but_by_the_surveys_that_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, surveys = snapshot_of(*(node_state(name=name) for name in NODES)), Surveys()
    diagnose(snapshot, guaranteed_pod("first"), Placement(), surveys=surveys)
    diagnose(snapshot, guaranteed_pod("first"), Placement(), surveys=Surveys())
    asked: list[str] = []

    def listening(snapshot: Snapshot, node: Node, question: Question) -> NodeStatus:
        asked.append(node.name)
        return status_of(snapshot, node, question)

    monkeypatch.setattr(survey, "status_of", listening)
    diagnose(snapshot, guaranteed_pod("second"), Placement())
    diagnose(snapshot, guaranteed_pod("second"), Placement(), surveys=Surveys())
    assert sorted(asked) == sorted([*NODES, *NODES])
    diagnose(snapshot, guaranteed_pod("second"), Placement(), surveys=surveys)
    assert len(asked) == 2 * len(NODES)


def test_a_diagnosis_stays_as_it_is_when_the_next_pod_of_the_kind_is_diagnosed() -> None:
    snapshot, surveys = snapshot_of(*(node_state(name=name) for name in NODES)), Surveys()
    first = diagnose(snapshot, guaranteed_pod("first"), Placement(), surveys=surveys)
    candidates, rejected = tuple(first.candidates), tuple(first.rejected)
    less = applied(changes.NodeUpdated(node("n3", ready=False)), changes.NodeRemoved("n4"), to=snapshot)
    assert diagnose(less, guaranteed_pod("second"), Placement(), surveys=surveys).candidates != candidates
    assert (first.candidates, first.rejected) == (candidates, rejected)


def test_pods_with_another_overhead_are_of_another_kind() -> None:
    state = node_state()
    snapshot, surveys = snapshot_of(state), Surveys()
    small = guaranteed_pod("small")
    (fits,) = diagnose(snapshot, small, Placement(), surveys=surveys).candidates
    large = replace(small, name="large", overhead=snapshot.nodes[state.name].allocatable)
    (rejected,) = diagnose(snapshot, large, Placement(), surveys=surveys).rejected
    assert (fits.node, rejected.node, rejected.reason) == (state.name, state.name, "InsufficientResources")


def test_surveys_of_the_last_kinds_are_kept_and_they_keep_no_state() -> None:
    state = node_state()
    snapshot, surveys = snapshot_of(state), Surveys()
    for memory in range(1, 3 * survey.MAX_SURVEYS):
        diagnose(snapshot, pod("p", f"cpu=1 memory={memory}Mi"), Placement(), surveys=surveys)
    assert len(surveys._surveys) == survey.MAX_SURVEYS
    seen = weakref.ref(state)
    del state, snapshot
    gc.collect()
    assert seen() is None


def test_what_takes_longer_than_its_turn_is_gone_on_with_in_the_next() -> None:
    """The turn is over at once, and still each one gets further by a node."""
    states = [node_state(name=f"node-{index}") for index in range(4)]
    snapshot, surveys = snapshot_of(*states), Surveys()
    asked = guaranteed_pod("asked", 2)
    turns = 1
    while True:
        try:
            effort = Shares(time.thread_time, turn_seconds=-1.0)
            diagnosis = diagnose(snapshot, asked, Placement(), surveys=surveys, effort=effort)
            break
        except TurnOver:
            turns += 1
    assert turns == len(states)
    assert answers_of(diagnosis) == answers_of(diagnose(snapshot, asked, Placement()))
