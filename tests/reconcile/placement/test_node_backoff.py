"""Which nodes back off from a workload, by a clock that the test moves."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.builders import node_state, snapshot_of, watched_pod
from tests.clock import Clock
from tests.reconcile.threads import at_once

from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.model.pods.scheduling import Owner, WatchedPod
from topomend.reconcile.placement import node_backoff as node_backoffs
from topomend.reconcile.placement.node_backoff import NodeBackoff
from topomend.runtime.backoff import Backoff, Exponential

WEB = Owner("ReplicaSet", "web", "web-uid")


def relaunched_pod(name: str, *, attempt: int = 1, **fields: Any) -> WatchedPod:
    return watched_pod(name, version="10", attempt=attempt, **fields)


def published(version: str) -> Snapshot:
    """Node a, whose agent has published at this version."""
    return snapshot_of(node_state(), version=version)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node_backoff(clock: Clock) -> NodeBackoff:
    return NodeBackoff(Backoff(clock, Exponential(1.0, 300.0)))


@pytest.mark.parametrize(
    ("refused", "like", "other"),
    [
        (
            relaunched_pod("web-1", attempt=0, owner=WEB),
            relaunched_pod("web-2", attempt=0, owner=WEB),
            relaunched_pod("db-1", attempt=0, owner=replace(WEB, uid="db")),
        ),
        (relaunched_pod("train"), relaunched_pod("train", attempt=2), relaunched_pod("train-2")),
        (relaunched_pod("train-r1"), relaunched_pod("train-r2", attempt=2), relaunched_pod("other-r1")),
    ],
    ids=["of a controller", "of one name", "of names with a suffix"],
)
def test_a_node_backs_off_from_the_workload_of_a_pod_that_it_refused(
    refused: WatchedPod, like: WatchedPod, other: WatchedPod, node_backoff: NodeBackoff
) -> None:
    snapshot = published("5")
    node_backoff.record_refusal(replace(refused, node="a"))
    answers = diagnose(snapshot, like.pod, like.placement, excluded_nodes=node_backoff.excluded_nodes(snapshot, like))
    assert answers.counts() == {"BackingOff": 1}
    assert answers.summary("") == "no node admits it now: 1 of 1 node does not get pods of this workload for a while"
    assert diagnose(
        snapshot, other.pod, other.placement, excluded_nodes=node_backoff.excluded_nodes(snapshot, other)
    ).candidates


@pytest.mark.parametrize(
    ("forged", "pod"),
    [
        (replace(WEB, uid="ns/train"), relaunched_pod("train")),
        (WEB, relaunched_pod("web-1", attempt=0, owner=WEB)),
    ],
    ids=["a pod's name", "a controller's uid"],
)
def test_no_node_backs_off_from_a_workload_that_pods_of_another_namespace_name_as_their_owner(
    forged: Owner, pod: WatchedPod, node_backoff: NodeBackoff
) -> None:
    stranger = relaunched_pod("evil", namespace="theirs", owner=forged, attempt=0, node="a")
    node_backoff.record_refusal(stranger)
    assert node_backoff.excluded_nodes(published("5"), replace(stranger, node="")).keys() == {"a"}
    assert not node_backoff.excluded_nodes(published("5"), pod)


def test_a_controller_s_uid_that_reads_like_a_name_is_none_in_its_own_namespace_either(
    node_backoff: NodeBackoff,
) -> None:
    node_backoff.record_refusal(relaunched_pod("web-1", owner=replace(WEB, uid="train"), node="a"))
    assert not node_backoff.excluded_nodes(published("5"), relaunched_pod("train"))


def test_refusals_by_several_nodes_at_once_are_all_remembered(node_backoff: NodeBackoff) -> None:
    pod, nodes = relaunched_pod("train"), [f"node-{number}" for number in range(400)]

    def refuse(names: list[str]) -> None:
        for name in names:
            node_backoff.record_refusal(replace(pod, node=name))

    at_once([partial(refuse, nodes[start::4]) for start in range(4)])
    assert node_backoff.excluded_nodes(published("5"), pod).keys() == set(nodes)


def test_it_is_a_candidate_again_once_it_publishes_something_new(node_backoff: NodeBackoff) -> None:
    pod = relaunched_pod("train")
    node_backoff.record_refusal(replace(pod, node="a"))
    assert node_backoff.remaining(published("9"), pod) == 1
    assert node_backoff.remaining(published("11"), pod) is None
    assert not node_backoff.excluded_nodes(published("11"), pod)


def test_the_back_off_doubles_with_each_refusal_and_counts_each_once(node_backoff: NodeBackoff, clock: Clock) -> None:
    pod, snapshot = relaunched_pod("train"), published("5")
    for number, seconds in enumerate((1, 2, 4)):
        for _ in range(2):  # reported twice, but refused once
            node_backoff.record_refusal(replace(pod, uid=f"uid-{number}", node="a"))
        assert node_backoff.remaining(snapshot, pod) == seconds
        clock.now += seconds
        assert node_backoff.remaining(snapshot, pod) is None
        assert not node_backoff.excluded_nodes(snapshot, pod)


def test_the_node_that_refused_the_pod_itself_is_not_excluded(node_backoff: NodeBackoff) -> None:
    """The diagnosis says more of that node than that it backs off."""
    pod = relaunched_pod("train", node="a")
    node_backoff.record_refusal(pod)
    assert not node_backoff.excluded_nodes(published("5"), pod)


def test_what_is_remembered_is_bounded_by_refusals_and_not_by_workloads_times_nodes(
    node_backoff: NodeBackoff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_backoffs, "MAX_ENTRIES", 50)
    pods = [relaunched_pod(f"train-{number}") for number in range(10)]
    for number in range(20):
        for pod in pods:
            node_backoff.record_refusal(replace(pod, node=f"node-{number}"))
    excluded = [set(node_backoff.excluded_nodes(published("5"), pod)) for pod in pods]
    assert excluded == [{f"node-{number}" for number in range(15, 20)}] * 10
    assert sum(map(len, node_backoff._versions.values())) == 50
