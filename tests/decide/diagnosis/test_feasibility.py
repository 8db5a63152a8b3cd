"""A diagnosis gives the same answers as whole admissions on every node.

A failing random test shows its seed in its name; TOPOMEND_SEED runs it again.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import TWO_NUMA_NODES, applied, guaranteed_pod, node, node_state, pod, snapshot_of
from tests.replay.test_properties import any_pods, any_states, odd_but_running
from tests.seeds import SEED, cases
from verify.oracle.cases import node_state as state_of_case
from verify.oracle.kept import KEPT
from verify.oracle.kubelet_oracle import Case
from verify.oracle.random_cases.generate import random_case

from topomend.cache import changes
from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.diagnosis import node_status
from topomend.decide.diagnosis.feasibility import Diagnosis, any_node_admits, diagnose, hostnames_without_agent
from topomend.decide.scoring import Score, score
from topomend.explain.explanation import blocking_resources, explain, numa_nodes_text
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement
from topomend.replay.admission import admit, release
from topomend.wire.pods.pod import read_pod

PLENTY = 1 << 80


def diagnosed(states: list[NodeState], asked: Pod) -> Diagnosis:
    """The diagnosis of these nodes, none of which the scheduler objects to."""
    names = {
        name for container in asked.containers for name in (*container.resources.requests, *container.resources.limits)
    }
    names |= set(asked.resources.requests if asked.resources else ())
    allocatable = dict.fromkeys((*names, "pods"), PLENTY)
    nodes = {state.name: node(state.name, allocatable=allocatable) for state in states}
    publications = {state.name: Publication(state, "1") for state in states}
    return diagnose(Snapshot(nodes, publications), asked, Placement())


def answers_of(diagnosis: Diagnosis) -> tuple[list[tuple[str, Score]], list[tuple[str, str, str, str]]]:
    yes = [(candidate.place, candidate.score) for candidate in diagnosis.candidates]
    return yes, [
        (status.node, status.reason, status.summary, diagnosis.explanation(status)) for status in diagnosis.rejected
    ]


def test_a_summary_says_how_many_nodes_lack_what() -> None:
    states = [node_state(name=name) for name in "abc"]
    diagnosis = diagnosed(states, pod("p", "cpu=5 memory=1Gi"))
    assert diagnosis.summary("") == "no node admits it now: 3 of 3 nodes do not fit its cpu on NUMA nodes"
    large = node_state("sockets:1 cores:9 memory:8Gi", name="large")
    diagnosis = diagnosed([*states, large], pod("p", "cpu=5 memory=1Gi"))
    assert diagnosis.summary() == "large would admit it; 3 of 4 nodes do not fit its cpu on NUMA nodes"


def test_a_summary_names_what_the_scheduler_lacks() -> None:
    nodes = {"a": node("a", allocatable={"cpu": 1000, "pods": 110000}), "b": node("b")}
    publications = {name: Publication(node_state(name=name), "1") for name in nodes}
    placement = Placement(node_selector={"no": "such label"})
    assert diagnose(Snapshot(nodes, publications), pod("p", "cpu=2 memory=1Gi"), placement).summary("") == (
        "no node admits it now: 2 of 2 nodes do not suit it (NodeSelector)"
    )


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
            text = explain(verdict, state, asked)
            no.append((state.name, verdict.reason, blocking_resources(verdict), text))
    return (
        sorted(yes, key=lambda answer: answer[1]),
        sorted(no, key=lambda answer: (not answer[1].endswith("Error"), answer[0])),
    )


@settings(max_examples=cases(70, 200), deadline=None)
@given(st.lists(any_states | odd_but_running(), max_size=3), any_pods)
def test_a_diagnosis_says_what_admissions_say_on_the_oddest_nodes_and_pods(states: list[NodeState], asked: Pod) -> None:
    states = [replace(state, name=f"node-{number}") for number, state in enumerate(states)]
    assert answers_of(diagnosed(states, asked)) == admitted_whole(states, asked)


def lives(case: Case) -> Iterator[NodeState]:
    """The states that a case's node goes through."""
    state = state_of_case(case)
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
        replace(whole, name=f"{whole.name}-{container.name}", uid="", containers=(container,), resources=None)
        for whole in pods
        for container in whole.containers
    ]
    for asked in (*pods, *alone):
        assert answers_of(diagnosed(states, asked)) == admitted_whole(states, asked), asked


@pytest.mark.parametrize("seed", [SEED])
def test_a_diagnosis_says_what_admissions_say_to_random_cases(seed: int) -> None:
    for number in range(cases(10, 60)):
        check(random_case(random.Random(seed + number)))


@pytest.mark.parametrize("path", KEPT, ids=[path.stem for path in KEPT])
def test_a_diagnosis_says_what_admissions_say_to_a_kept_case(path: Path) -> None:
    check(json.loads(path.read_text()))


@pytest.mark.parametrize("policy", ["none", "restricted", "single-numa-node"])
def test_common_pods_are_diagnosed_without_an_admission(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = replace(node_state(f"{TWO_NUMA_NODES} device:v.com/gpu@0=2", policy), name="a")
    full = replace(admit(empty, pod("q", "cpu=3 memory=1Gi v.com/gpu=2"))[1], name="b")
    asked = pod("p", "cpu=2 v.com/gpu=1 memory=1Gi") if policy != "none" else pod("p", "cpu=2 memory=1Gi")
    states = [empty, full] if policy != "none" else [empty]
    expected = admitted_whole(states, asked)
    monkeypatch.setattr(node_status, "_replay_whole", lambda *_: pytest.fail("admitted"))
    assert answers_of(diagnosed(states, asked)) == expected
    assert len(expected[0]) == 1


@pytest.mark.parametrize(
    "change",
    [
        changes.Published(node_state(), "5", problem="its agent says so"),
        changes.Published(node_state(), "5", heartbeat=changes.Heartbeat("2026-01-01T00:00:00Z", 9999.0, 9999.0)),
        changes.NodeUpdated(node(capacity={"cpu": 4000})),
        changes.Unreadable("a", "no machine"),
        changes.NodeUpdated(node(ready=False)),
    ],
    ids=["not Ready", "silent", "not believed", "malformed", "Node not Ready"],
)
def test_a_pod_that_no_node_admits_goes_to_nodes_without_an_agent_and_to_no_other_unknown_node(
    change: changes.Change,
) -> None:
    asked = guaranteed_pod(cpus=2)
    before = snapshot_of(node_state())
    unknown = applied(change, changes.NodeUpdated(node("b")), to=before)
    diagnosis = diagnose(unknown, asked, Placement())
    assert not diagnosis.candidates
    assert hostnames_without_agent(unknown, asked, diagnosis) == ("b",)
    assert not any_node_admits(unknown, ["a"], asked, Placement())
    assert any_node_admits(unknown, ["b"], asked, Placement())


def test_a_diagnosis_says_in_words_what_contradicts_a_node() -> None:
    unbelieved = applied(changes.NodeUpdated(node(capacity={"cpu": 4000})), to=snapshot_of(node_state()))
    diagnosis = diagnose(unbelieved, guaranteed_pod(cpus=2), Placement())
    (rejected,) = diagnosis.rejected
    assert diagnosis.explanation(rejected) == "a: its agent is not believed: it publishes 8 CPUs, its Node has 4"
