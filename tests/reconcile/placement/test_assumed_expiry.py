"""Assumed pods that no watch shows any more are read: those that have ended are forgotten, stuck ones reported."""

from typing import Any

import pytest
from tests.builders import applied, guaranteed_pod, node_state, pod_manifest, snapshot_of, watched_pod
from tests.clock import Clock

from topomend.cache import changes
from topomend.kube.errors import NotFound
from topomend.kube.resources import Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.placement.assumed_expiry import AssumedExpiry
from topomend.reconcile.store import Store
from topomend.wire.group import FIT_GATE, RELEASED_ANNOTATION
from topomend.wire.pods.scheduling import MAX_RULES


class Cluster:
    """One pod as the API server has it, if at all, and what the expiry makes of it."""

    def __init__(self, content: dict[str, Any] | None) -> None:
        self.content, self.store, self.clock = content, Store(), Clock(0.0)
        self.reported: list[changes.Change] = []
        self.not_scheduled_pods: list[str] = []
        expiry = AssumedExpiry(self, self.store, self, self.reported.append, self.clock)  # type: ignore[arg-type]
        self.check = expiry.check

    def get(self, _: Resource, name: str, namespace: str) -> dict[str, Any]:
        if self.content is None:
            raise NotFound(404, "NotFound", f"{namespace}/{name}")
        return self.content

    def not_scheduled(self, pod: WatchedPod, nodes: tuple[str, ...]) -> None:
        assert nodes == ("a",)
        self.not_scheduled_pods.append(pod.name)


def manifest(phase: str = "Running", *, gates: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": "ns", "uid": "p", "annotations": {RELEASED_ANNOTATION: "true"}} | fields
    return pod_manifest("p", "cpu=2 memory=1Mi", gates=gates, status={"phase": phase}, **metadata)


DEPARTED = applied(
    changes.PodUpdated(watched_pod(node="a"), 1.0),
    changes.PodRemoved("ns", "p", "p", 2.0),
    to=snapshot_of(node_state()),
)


@pytest.mark.parametrize(
    ("content", "is_forgotten"),
    [
        (None, True),
        (manifest("Succeeded"), True),
        (manifest("Failed"), True),
        (manifest(uid="another"), True),
        (manifest("Running"), False),
        (manifest("Pending"), False),
    ],
    ids=["gone", "succeeded", "failed", "another pod of its name", "running", "pending"],
)
def test_a_pod_that_left_the_watch_is_forgotten_unless_it_runs(
    content: dict[str, Any] | None, is_forgotten: bool
) -> None:
    cluster = Cluster(content)
    cluster.store.snapshot = DEPARTED
    cluster.check()
    assert cluster.reported == ([changes.PodForgotten("ns", "p", "p")] if is_forgotten else [])


@pytest.mark.parametrize(
    ("content", "is_reported"),
    [
        (manifest("Pending"), True),
        (manifest("Pending", annotations={}), False),
        (manifest("Pending", gates=(FIT_GATE,)), False),
        (manifest("Pending", deletionTimestamp="2026-01-01T00:00:00Z"), False),
        (manifest("Running"), False),
        (None, False),
    ],
    ids=["pending", "not ungated by topomend", "gated", "deleted", "running", "gone"],
)
def test_an_ungated_pod_that_no_scheduler_bound_in_time_is_reported(
    content: dict[str, Any] | None, is_reported: bool
) -> None:
    cluster = Cluster(content)
    cluster.store.snapshot = applied(changes.PodAssumed(guaranteed_pod(), ("a",), 1.0), to=snapshot_of(node_state()))
    cluster.clock.now = 1.0 + changes.UNBOUND_SECONDS - 1
    cluster.check()
    assert cluster.not_scheduled_pods == []
    cluster.clock.now += 1
    cluster.check()
    assert cluster.not_scheduled_pods == (["p"] if is_reported else [])


def test_it_is_reported_once_although_the_snapshot_has_dropped_it_already() -> None:
    cluster = Cluster(manifest("Pending"))
    cluster.store.snapshot = applied(changes.PodAssumed(guaranteed_pod(), ("a",), 1.0), to=snapshot_of(node_state()))
    cluster.check()
    cluster.clock.now = 1.0 + changes.UNBOUND_SECONDS
    cluster.store.snapshot = applied(changes.TimePassed(cluster.clock.now), to=cluster.store.snapshot)
    assert not cluster.store.snapshot.assumed
    cluster.check()
    cluster.check()
    assert cluster.not_scheduled_pods == ["p"]


def test_one_that_cannot_be_read_keeps_no_other_from_being_forgotten() -> None:
    poison = manifest("Running")
    poison["spec"]["tolerations"] = [{"key": str(number)} for number in range(MAX_RULES + 1)]
    cluster = Cluster(poison)
    other = watched_pod("q", uid="q", node="a")
    cluster.store.snapshot = applied(
        changes.PodUpdated(other, 1.0), changes.PodRemoved("ns", "q", "q", 2.0), to=DEPARTED
    )

    def get(_: Resource, name: str, namespace: str) -> dict[str, Any]:
        if name == "q":
            raise NotFound(404, "NotFound", f"{namespace}/{name}")
        return poison

    cluster.get = get  # type: ignore[method-assign]
    cluster.check()
    assert cluster.reported == [changes.PodForgotten("ns", "q", "q")]
