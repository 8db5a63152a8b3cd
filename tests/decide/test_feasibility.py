"""A diagnosis in short gives what whole admissions on every node give.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import gc
import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.cases import node_state
from tests.oracle.generate import random_case
from tests.oracle.kubelet_oracle import Case
from tests.replay.nodes import TWO, node, pod
from tests.replay.test_properties import any_pods, any_states, odd_but_running

from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide import feasibility
from topomend.decide.explanation import blocking_resources, explain, numa_nodes_text
from topomend.decide.feasibility import Diagnosis, diagnose
from topomend.decide.scoring import Score, score
from topomend.model.cluster import Node, Placement
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.replay.admission import admit, release
from topomend.replay.fast_path.admission import MAX_ANSWERS
from topomend.wire.pod import read_pod

SEED = int(os.environ.get("TOPOMEND_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

PLENTY = 1 << 80


def diagnosed(states: list[NodeState], asked: Pod) -> Diagnosis:
    """The diagnosis of these nodes, none of which the scheduler objects to."""
    names = {name for each in asked.containers for name in (*each.resources.requests, *each.resources.limits)}
    names |= set(asked.resources.requests if asked.resources else ())
    allocatable = dict.fromkeys((*names, "pods"), PLENTY)
    nodes = {
        each.name: Node(each.name, labels={"kubernetes.io/hostname": each.name}, allocatable=allocatable)
        for each in states
    }
    publications = {each.name: Publication(each, "1") for each in states}
    return diagnose(Snapshot(nodes, publications), asked, Placement())


def told(answers: Diagnosis) -> tuple[list[tuple[str, Score]], list[tuple[str, str, str, str]]]:
    yes = [(each.place, each.score) for each in answers.candidates]
    return yes, [(each.node, each.reason, each.summary, each.explanation) for each in answers.rejected]


def admitted_whole(
    states: list[NodeState], asked: Pod
) -> tuple[list[tuple[str, Score]], list[tuple[str, str, str, str]]]:
    """The same by whole admissions."""
    yes, no = [], []
    for state in states:
        verdict, after = admit(state, asked)
        if verdict.admitted:
            yes.append((f"{state.name} {numa_nodes_text(verdict)}".rstrip(), score(after, verdict)))
        else:
            text = explain(verdict, state.name, state.kubelet.topology_manager_policy)
            no.append((state.name, verdict.reason, blocking_resources(verdict), text))
    return sorted(yes, key=lambda each: each[1]), sorted(no, key=lambda each: (not each[1].endswith("Error"), each[0]))


@settings(max_examples=200, deadline=None)
@given(st.lists(any_states | odd_but_running(), max_size=3), any_pods)
def test_a_survey_says_what_admissions_say_on_the_oddest_nodes_and_pods(states: list[NodeState], asked: Pod) -> None:
    states = [replace(each, name=f"node-{number}") for number, each in enumerate(states)]
    assert told(diagnosed(states, asked)) == admitted_whole(states, asked)


def lives(case: Case) -> Iterator[NodeState]:
    """The states that a case's node goes through."""
    state = node_state(case)
    yield state
    for step in case["steps"]:
        if "admit" in step:
            state = admit(state, read_pod(step["admit"]))[1]
        elif "end" in step:
            state = release(state, step["end"]["namespace"], step["end"]["name"])
        else:
            continue
        yield state


def check(case: Case) -> None:
    """Ask all of a node's states, as if each were a node, about each pod of the case and each of its containers."""
    states = [replace(state, name=f"node-{number}") for number, state in enumerate(lives(case))]
    pods = [read_pod(step["admit"]) for step in case["steps"] if "admit" in step]
    alone = [
        replace(each, name=f"{each.name}-{container.name}", uid="", containers=(container,), resources=None)
        for each in pods
        for container in each.containers
    ]
    for asked in (*pods, *alone):
        assert told(diagnosed(states, asked)) == admitted_whole(states, asked), asked


@pytest.mark.parametrize("seed", [SEED])
def test_a_survey_says_what_admissions_say_to_random_cases(seed: int) -> None:
    for number in range(60):
        check(random_case(random.Random(seed + number)))


KEPT = sorted((Path(__file__).parents[1] / "oracle" / "cases").glob("*.json"))


@pytest.mark.parametrize("kept", KEPT, ids=[path.stem for path in KEPT])
def test_a_survey_says_what_admissions_say_to_a_kept_case(kept: Path) -> None:
    check(json.loads(kept.read_text()))


@pytest.mark.parametrize("policy", ["none", "restricted", "single-numa-node"])
def test_common_pods_are_surveyed_without_an_admission(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = replace(node(f"{TWO} device:v.com/gpu@0=2", policy), name="a")
    full = replace(admit(empty, pod("q", "cpu=3 memory=1Gi v.com/gpu=2"))[1], name="b")
    asked = pod("p", "cpu=2 v.com/gpu=1 memory=1Gi") if policy != "none" else pod("p", "cpu=2 memory=1Gi")
    states = [empty, full] if policy != "none" else [empty]
    expected = admitted_whole(states, asked)
    monkeypatch.setattr(feasibility, "_replay_whole", lambda *_: pytest.fail("admitted"))
    assert told(diagnosed(states, asked)) == expected
    assert len(expected[0]) == 1


def test_what_replay_said_is_remembered_with_the_state_for_the_last_kinds_of_pods() -> None:
    state = node(TWO)
    gc.collect()
    before = len(feasibility._answers)
    for memory in range(1, 3 * MAX_ANSWERS):
        diagnosed([state], pod("p", f"cpu=1 memory={memory}Mi"))
    assert len(feasibility._answers) == before + 1
    assert len(feasibility._answers.of(state).by_shape) == MAX_ANSWERS
    del state
    gc.collect()
    assert len(feasibility._answers) == before
