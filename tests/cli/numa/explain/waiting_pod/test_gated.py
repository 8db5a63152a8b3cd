"""What is told of a pod that topomend keeps gated: why, who goes first, and what happens next."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.builders import gated_pod, guaranteed_pod, node_state, snapshot_of

from topomend.cli.numa.explain.waiting_pod.gated import GROUP_PATIENCE, RETRIES, gated, is_gated
from topomend.cli.numa.explain.waiting_pod.surroundings import Surroundings
from topomend.decide.diagnosis.feasibility import Diagnosis, diagnose
from topomend.model.pods.scheduling import Owner, PodGroup, WatchedPod
from topomend.reconcile.gated.gangs import INCOMPLETE_SECONDS
from topomend.reconcile.result import RETRY_SECONDS
from topomend.wire.group import FIT_GATE, PLACEHOLDER_GATE, RELAUNCH_GATE

FULL = snapshot_of(node_state(pods=[guaranteed_pod("low", 3), guaranteed_pod("high", 4)]))
EMPTY = snapshot_of(node_state())
WEB = Owner("ReplicaSet", "web-1", "9", "apps/v1")


class Known:
    """Surroundings as a user reads them."""

    def __init__(
        self,
        *pods: WatchedPod,
        steered: bool | None = False,
        refusal: Mapping[str, Any] | None = None,
        said: Mapping[str, Any] | None = None,
        size: int | None = None,
        autoscaled: bool = False,
    ) -> None:
        self.autoscaled = autoscaled
        self._pods, self._steered, self._refusal, self._said, self._size = pods, steered, refusal, said, size

    def pods(self, _: str) -> Sequence[WatchedPod]:
        return self._pods

    def is_steered(self, _: str) -> bool | None:
        return self._steered

    def refusal_of_sibling(self, *_: str) -> Mapping[str, Any]:
        return self._refusal or {}

    def said_of(self, _: WatchedPod) -> Mapping[str, Any]:
        return self._said or {}

    def sees_autoscaler(self, *_: object) -> bool:
        return self.autoscaled

    def group_size(self, *_: object) -> int | None:
        return self._size


def told(pod: WatchedPod, around: Known, diagnosis: Diagnosis | None = None, infeasible: str = "") -> list[str]:
    answers = diagnosis or diagnose(FULL, pod.pod, pod.placement)
    found = gated(pod, answers, cast("Surroundings", around), infeasible)
    return [found.first, *found.why, *found.next]


def test_a_steered_pod_is_told_since_when_and_by_which_label() -> None:
    lines = told(gated_pod(), Known(steered=True))
    assert lines[0] == (
        "p is gated by topomend since 2026-01-01T00:00:00Z: namespace ns is steered (topomend.io/steer=enabled), so a "
        "node is chosen first"
    )
    assert lines[-1].startswith("next: topomend ungates it once a node admits it")


def test_a_braked_pod_is_told_of_the_pod_that_was_refused() -> None:
    event = {
        "regarding": {"kind": "Deployment", "name": "web", "uid": "d"},
        "related": {"kind": "Pod", "name": "web-1-a", "uid": "a"},
        "note": "a refuses container main",
    }
    (first, *_) = told(gated_pod(owner=WEB), Known(refusal=event))
    assert first.endswith(
        ": new pods of ReplicaSet web-1 are braked, because web-1-a was refused: a refuses container main"
    )
    (first, *_) = told(gated_pod(owner=WEB), Known())
    assert first.endswith("are braked, because one of them was refused")


def test_what_the_user_may_not_read_is_not_asserted() -> None:
    (first, *_) = told(gated_pod(), Known(steered=None))
    assert first.endswith(": namespace ns is steered, or its creator gated it")
    (first, *_) = told(gated_pod(owner=WEB), Known(steered=None))
    assert first.endswith("or new pods of ReplicaSet web-1 are braked: you may not read which")


@pytest.mark.parametrize(
    ("gate", "words"),
    [(RELAUNCH_GATE, "it replaces a pod that a kubelet refused (relaunch r-1)"), (PLACEHOLDER_GATE, "a placeholder")],
)
def test_replacements_and_placeholders_are_told_what_they_are(gate: str, words: str) -> None:
    pod = gated_pod(gates=(gate,), record="r-1")
    assert is_gated(pod)
    assert words in told(pod, Known())[0]


def test_of_a_group_it_is_told_how_many_have_come() -> None:
    group = PodGroup("kueue.x-k8s.io", "train", 12)
    pods = [gated_pod(f"train-{number}", group=group) for number in range(3)]
    lines = told(pods[0], Known(*pods))
    assert "its group train is incomplete: 3 of 12 have come (train-0, train-1, train-2)" in lines
    assert lines[-1].endswith("without the missing ones five minutes after the first came")
    whole = [replace(pod, group=PodGroup("kueue.x-k8s.io", "train", 3)) for pod in pods]
    assert not any("group" in line for line in told(whole[0], Known(*whole)))
    by_object = [replace(pod, group=PodGroup("scheduling.k8s.io", "train")) for pod in pods]
    assert "3 of 4 have come" in told(by_object[0], Known(*by_object, size=4))[1]
    assert "how many it needs is not known" in told(by_object[0], Known(*by_object))[1]


def test_earlier_pods_are_named_but_not_those_like_it() -> None:
    wide, like, pod = gated_pod("wide", 4), gated_pod("like", 3), gated_pod(created=2)
    assert "wide goes first where both need the same place" in told(pod, Known(wide, like, pod))
    assert not any("first where" in line for line in told(pod, Known(like, pod, gated_pod("late", 4, created=9))))


def test_the_gates_of_others_are_named_and_go_first() -> None:
    lines = told(gated_pod(gates=(FIT_GATE, "kueue.x-k8s.io/admission")), Known())
    assert "kueue.x-k8s.io/admission of another owner keeps it gated as well" in lines
    assert lines[-1] == "next: topomend looks for a node once no other gate is left"


def test_what_only_the_operator_knows_is_quoted_where_the_nodes_do_not_explain_the_wait() -> None:
    pod = gated_pod()
    said = {"reason": "WaitingForTurn", "note": "reserved for wide", "eventTime": "2026-01-01T00:00:09.000000Z"}
    admitted = diagnose(EMPTY, pod.pod, pod.placement)
    lines = told(pod, Known(said=said), admitted)
    assert "topomend said at 2026-01-01T00:00:09.000000Z (WaitingForTurn): reserved for wide" in lines
    assert lines[-1] == "next: topomend ungates it when its turn comes, within seconds if nobody goes first"
    assert not any("topomend said" in line for line in told(pod, Known(said=said | {"reason": "UngateDeferred"})))


def test_autoscalers_and_what_a_user_has_to_do_follow_from_the_pod() -> None:
    around = Known(autoscaled=True)
    assert told(gated_pod(), around)[-2] == "cluster autoscalers are not told of it yet"
    assert any("autoscalers count it" in line for line in told(gated_pod(asks_for_node=True), around))
    lines = told(gated_pod(), around, infeasible="no node admits p even when empty")
    assert (
        "cluster autoscalers are not told of it: a new node of a kind that is known would not admit it either" in lines
    )
    assert "ask for less, or add nodes that are large enough" in lines[-1]


@pytest.mark.parametrize("infeasible", ["", "no node admits p even when empty"])
def test_where_no_autoscaler_is_seen_none_is_told_of(infeasible: str) -> None:
    for pod in (gated_pod(), gated_pod(asks_for_node=True)):
        assert not any("autoscaler" in line for line in told(pod, Known(), infeasible=infeasible))


def test_the_words_of_times_are_those_of_the_operator() -> None:
    assert (RETRIES, RETRY_SECONDS) == ("once a minute", 60.0)
    assert (GROUP_PATIENCE.split()[0], INCOMPLETE_SECONDS) == ("five", 300.0)


def test_a_pod_that_another_gate_alone_holds_or_that_has_a_node_is_not_ours() -> None:
    assert not is_gated(gated_pod(gates=("kueue.x-k8s.io/admission",)))
    assert not is_gated(gated_pod(node="a"))
    assert not is_gated(gated_pod(deleting=True))
