"""Many pods in one answer: which are named, which count, and how an answer ends."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import guaranteed_pod, node_state, pod_manifest, snapshot_of

from topomend.cli.numa.cluster.devices.claims import Claims
from topomend.cli.numa.explain.answer import Answer
from topomend.cli.numa.explain.node_answer import NodeAnswer
from topomend.cli.numa.explain.pod_state import State
from topomend.cli.numa.explain.several import Group, Overview, SeenPod, _alike, seen
from topomend.cli.output.failures import NO, NOT_KNOWN, YES
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.model.pods.scheduling import Placement

SNAPSHOT = snapshot_of(node_state(name="a"), node_state(name="b"))


def answer(name: str, code: int, **fields: Any) -> Answer:
    pod = guaranteed_pod(name)
    on_node = NodeAnswer([f"a says {code} of {name}"], code)
    return replace(Answer(pod, "a", on_node, diagnose(SNAPSHOT, pod, Placement()), (), Claims(), False, True), **fields)  # noqa: FBT003


def group(code: int, *names: str, state: State = State.REFUSED) -> Group:
    return Group(state, tuple(SeenPod("ns", name, state, {}) for name in names), answer(names[0], code))


def overview(*groups: Group, **fields: Any) -> Overview:
    counts = {each.state: len(each.pods) for each in groups}
    return replace(Overview("deployment/web", counts, groups), **fields)


def test_a_paragraph_names_five_pods_and_wide_all() -> None:
    found = overview(group(NO, *"abcdefg"))
    assert list(found.lines("table")) == [
        "deployment/web: 7 refused",
        "",
        "7 pods refused: a, b, c, d, e and 2 more",
        f"  a says {NO} of a",
        "  elsewhere: b NUMA 0 would admit it now",
    ]
    assert "7 pods refused: a, b, c, d, e, f, g" in found.lines("wide")
    assert "7 pods refused: ns/a, ns/b, ns/c, ns/d, ns/e and 2 more" in replace(found, everywhere=True).lines("table")


def test_a_paragraph_says_of_ten_nodes_why_they_would_not_and_wide_of_all() -> None:
    many = snapshot_of(*(node_state(name=f"n{number:02}") for number in range(13)))
    pod = guaranteed_pod("a", 9)
    wide = replace(answer("a", NO), diagnosis=diagnose(many, pod, Placement()))
    found = overview(replace(group(NO, "a"), answer=wide))
    lines = list(found.lines("table"))
    assert lines[-1] == "    and 3 more nodes, with -o wide"
    assert len(list(found.lines("wide"))) == len(lines) + 2


def test_one_pod_and_several_agree_with_their_verb() -> None:
    found = overview(group(YES, "a", state=State.WAITS), group(YES, "b", "c", state=State.RESIZE_WAITS))
    lines = list(found.lines("table"))
    assert lines[0] == "deployment/web: 1 waits for a node, 2 wait for a resize"
    assert "waits for a node: a" in lines
    assert "2 pods wait for a resize: b, c" in lines
    ended = Overview("x", {State.STARTS: 2, State.RUNS: 3, State.ENDED: 4}, ())
    assert list(ended.lines("table")) == ["x: 2 start, 3 run, 4 have ended"]


@pytest.mark.parametrize(
    ("codes", "code"),
    [((), YES), ((YES,), YES), ((YES, NOT_KNOWN), NOT_KNOWN), ((NOT_KNOWN, NO, YES), NO)],
)
def test_the_worst_answer_counts(codes: tuple[int, ...], code: int) -> None:
    assert overview(*(group(each, f"p{number}") for number, each in enumerate(codes))).code == code


def test_pods_that_may_have_been_missed_are_no_good_answer() -> None:
    found = overview(owners_known=False)
    assert found.code == NOT_KNOWN
    assert list(found.lines("table")) == ["deployment/web: no pods that are known to be of it"]


def test_what_was_not_checked_is_said_once() -> None:
    groups = [replace(group(NO, name), answer=answer(name, NO, notes=("not checked",))) for name in "ab"]
    assert list(overview(*groups).lines("table")).count("not checked") == 1
    assert list(overview(*groups).lines("table"))[-2:] == ["", "not checked"]


def test_of_pods_that_ask_for_no_look_little_is_kept() -> None:
    running = pod_manifest("p", node="a", status={"phase": "Running"}, namespace="ns")
    assert seen(running) == SeenPod("ns", "p", State.RUNS, None)
    waiting = pod_manifest("p", namespace="ns")
    assert seen(waiting).content is waiting


@pytest.mark.parametrize(
    ("volumes", "groups"),
    [
        ([{"emptyDir": {}}, {"emptyDir": {}}], 1),
        ([{"persistentVolumeClaim": {"claimName": "shared"}}, {"persistentVolumeClaim": {"claimName": "shared"}}], 1),
        ([{"persistentVolumeClaim": {"claimName": "d-0"}}, {"persistentVolumeClaim": {"claimName": "d-1"}}], 2),
        ([{"ephemeral": {}}, {"ephemeral": {}}], 2),
    ],
)
def test_pods_whose_volumes_may_be_on_different_nodes_are_asked_about_apart(
    volumes: list[dict[str, Any]], groups: int
) -> None:
    owner = {"kind": "StatefulSet", "name": "db", "uid": "1", "controller": True}
    pods = [
        pod_manifest(
            f"db-{number}",
            spec={"volumes": [{"name": "disk", **volume}]},
            namespace="ns",
            uid=f"uid-{number}",
            ownerReferences=[owner],
        )
        for number, volume in enumerate(volumes)
    ]
    assert len(list(_alike(map(seen, pods)))) == groups
