"""A pod that asks for alignment and runs without it is explained once its node shows it, or should have."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import applied, guaranteed_pod, node_state, pod_manifest, running, snapshot_of, watched_pod
from tests.clock import Clock
from tests.reconcile.emitted import Emitted

from topomend.cache import changes
from topomend.kube.errors import NotFound, TooManyRequests, Unanswered, refused
from topomend.kube.resources import Resource
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.placement.unaligned_pods import MAX_READ, UNPUBLISHED_SECONDS, UnalignedPods
from topomend.reconcile.store import Store
from topomend.wire.pods.scheduling import MAX_RULES

EFFORT = running(node_state(policy="best-effort"), guaranteed_pod("low", 2), guaranteed_pod("high", 2))
"""One CPU is free on NUMA node 0, two on NUMA node 1."""

UNPINNED = node_state(policy="best-effort", cpu_manager="none")


class Running:
    """One pod as the API server has it."""

    def __init__(self, state: NodeState, phase: str = "Running", uid: str = "p") -> None:
        self.content = pod_manifest("p", "cpu=3 memory=1Mi", namespace="ns", uid=uid, status={"phase": phase})
        self.store, self.clock, self.emitted = Store(), Clock(0.0), Emitted()
        self.store.snapshot = snapshot_of(state)
        self.error: Exception | None = None
        self.asked: list[str] = []
        self.pods = UnalignedPods(self, self.store, self.emitted.announcer, self.clock)  # type: ignore[arg-type]

    def get(self, _resource: Resource, name: str, _namespace: str) -> dict[str, Any]:
        self.asked.append(name)
        if self.error:
            raise self.error
        return self.content

    def publish(self, state: NodeState) -> None:
        self.store.snapshot = applied(changes.Published(state, "9"), to=self.store.snapshot)

    def check(self) -> list[str]:
        self.pods.check()
        return self.emitted.notes("NotAligned")


def bound(cpus: int = 3, **fields: Any) -> WatchedPod:
    pod = watched_pod(cpus=cpus, node="a", **fields)
    return replace(pod, pod=replace(pod.pod, alignment="single-numa-node"))


def test_it_is_explained_once_when_its_node_shows_it() -> None:
    cluster = Running(EFFORT)
    cluster.pods.bound(bound())
    assert cluster.check() == []
    cluster.publish(running(EFFORT, bound().pod))
    (note,) = cluster.check()
    assert note.startswith(
        "a runs p, but not on one NUMA node, as topomend.io/alignment asks: container c0: cpu on NUMA 0,1."
    )
    assert len(cluster.check()) == 1


@pytest.mark.parametrize("pod", [bound(2), watched_pod(cpus=3, node="a")], ids=["is aligned", "asks for nothing"])
def test_a_pod_that_has_what_it_asks_for_is_not_explained(pod: WatchedPod) -> None:
    cluster = Running(EFFORT)
    cluster.pods.bound(pod)
    cluster.publish(running(EFFORT, pod.pod))
    assert cluster.check() == []


def test_one_of_which_its_node_pins_nothing_is_explained_after_a_while() -> None:
    cluster = Running(UNPINNED)
    cluster.pods.bound(bound())
    assert cluster.check() == []
    cluster.clock.now += UNPUBLISHED_SECONDS
    (note,) = cluster.check()
    assert "it gets neither exclusive CPUs nor devices: the CPU Manager of a has the policy none" in note


@pytest.mark.parametrize("pod", [{"phase": "Succeeded"}, {"uid": "another"}], ids=["ended", "another of its name"])
def test_one_that_no_longer_runs_is_forgotten(pod: dict[str, str]) -> None:
    cluster = Running(UNPINNED, **pod)
    cluster.pods.bound(bound())
    cluster.clock.now += UNPUBLISHED_SECONDS
    assert cluster.check() == []
    cluster.content = Running(UNPINNED).content
    assert cluster.check() == []


def test_one_that_cannot_be_read_is_forgotten_and_keeps_no_other_from_being_explained() -> None:
    cluster = Running(UNPINNED)
    cluster.pods.bound(bound(uid="poison"))
    readable, cluster.content = cluster.content, Running(UNPINNED, uid="poison").content
    cluster.content["spec"]["tolerations"] = [{"key": str(number)} for number in range(MAX_RULES + 1)]
    cluster.clock.now += UNPUBLISHED_SECONDS
    assert cluster.check() == []
    cluster.content = readable
    cluster.pods.bound(bound())
    cluster.clock.now += UNPUBLISHED_SECONDS
    assert len(cluster.check()) == 1


@pytest.mark.parametrize(
    "error", [refused(status, b"{}", "1") for status in (403, 429, 500, 503)] + [Unanswered("no")], ids=repr
)
def test_one_that_is_refused_for_now_is_explained_later(error: Exception) -> None:
    cluster = Running(UNPINNED)
    cluster.pods.bound(bound())
    cluster.clock.now += UNPUBLISHED_SECONDS
    cluster.error = error
    with suppress(TooManyRequests, Unanswered):
        cluster.check()
    cluster.error = None
    cluster.clock.now += UNPUBLISHED_SECONDS
    assert len(cluster.check()) == 1
    cluster.clock.now += UNPUBLISHED_SECONDS
    assert len(cluster.check()) == 1


def test_those_that_are_refused_for_now_let_others_be_read_first() -> None:
    cluster = Running(UNPINNED)
    for number in range(2 * MAX_READ):
        cluster.pods.bound(bound(name=f"p{number}", uid=f"{number}"))
    cluster.clock.now += UNPUBLISHED_SECONDS
    cluster.error = refused(500, b"{}")
    for _ in range(5):
        cluster.pods.check()
    assert cluster.asked == [f"p{number}" for number in range(2 * MAX_READ)]


def test_one_that_is_gone_is_not_asked_about_again() -> None:
    cluster = Running(UNPINNED)
    cluster.pods.bound(bound())
    cluster.clock.now += UNPUBLISHED_SECONDS
    cluster.error = NotFound(404, "NotFound", "p")
    for _ in range(3):
        assert cluster.check() == []
        cluster.clock.now += UNPUBLISHED_SECONDS
    assert cluster.asked == ["p"]
