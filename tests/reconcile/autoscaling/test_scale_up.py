"""Pods that wait gated are unschedulable for cluster autoscalers, on a real API server."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import node, node_state
from tests.clusters import Cluster
from tests.reconcile.parts import EMPTY_B, Parts
from tests.refused_pods import gated, gates, watched

from topomend.cache import changes
from topomend.kube.client import Client
from topomend.kube.errors import Forbidden
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.autoscaling.scale_up import PATIENCE_SECONDS, WRITE_BURST
from topomend.reconcile.optional_right import OFF_SECONDS, OptionalRight
from topomend.wire.group import ASKS_FOR_NODE, FIT_GATE, RELAUNCH_GATE

pytestmark = pytest.mark.cluster


@pytest.fixture
def parts(cluster: Cluster) -> Parts:
    return Parts(cluster, EMPTY_B)


def waiting(parts: Parts, pod: WatchedPod, *, infeasible: bool = False) -> None:
    """``pod`` as the snapshot shows it has waited long enough."""
    parts.watch(pod)
    parts.scale_up.wait([pod], infeasible=infeasible)
    parts.clock.now += PATIENCE_SECONDS


def condition(cluster: Cluster, name: str) -> dict[str, Any]:
    (scheduled,) = cluster.get(name)["status"]["conditions"]
    assert (scheduled["type"], scheduled["status"]) == ("PodScheduled", "False")
    return dict(scheduled)


def test_a_pod_that_waits_becomes_unschedulable_and_stays_gated(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "wide", 4)
    before = condition(cluster, "wide")
    parts.watch(pod)
    parts.scale_up.wait([pod], infeasible=False, why="no node admits it now: 2 of 2 nodes do not fit its cpu")
    parts.scale_up.check()
    assert condition(cluster, "wide") == before
    parts.clock.now += PATIENCE_SECONDS
    parts.scale_up.check()
    after = condition(cluster, "wide")
    assert after["reason"] == "Unschedulable"
    assert after["message"].startswith(f"{ASKS_FOR_NODE} no node admits it now: 2 of 2 nodes do not fit its cpu. ")
    assert "kubectl numa explain" in after["message"]
    assert watched(cluster, "wide").asks_for_node
    assert not watched(cluster, "wide").unschedulable, "no scheduler has said so"
    assert gates(cluster, "wide") == (FIT_GATE,)


def test_a_pod_is_written_once(parts: Parts, cluster: Cluster) -> None:
    waiting(parts, gated(cluster, "wide", 4))
    parts.scale_up.check()
    written = watched(cluster, "wide")
    waiting(parts, written)
    parts.scale_up.check()
    assert watched(cluster, "wide").version == written.version


def test_it_is_no_longer_unschedulable_where_no_new_node_would_help(parts: Parts, cluster: Cluster) -> None:
    before = gated(cluster, "wide", 4)
    untouched = condition(cluster, "wide")
    waiting(parts, before)
    parts.scale_up.check()
    waiting(parts, watched(cluster, "wide"), infeasible=True)
    parts.scale_up.check()
    assert condition(cluster, "wide") == untouched


def test_a_pod_for_which_no_known_node_is_large_enough_asks_for_none(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "wide", 4)
    waiting(parts, pod, infeasible=True)
    parts.scale_up.check()
    assert watched(cluster, "wide").version == pod.version


def test_a_node_of_which_nothing_is_known_yet_is_no_reason_to_ask_for_another(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "wide", 5)
    parts.apply(changes.NodeUpdated(node("new", cpus=16)))
    waiting(parts, pod)
    parts.scale_up.check()
    assert watched(cluster, "wide").version == pod.version
    parts.apply(
        changes.NodeUpdated(node("new", cpus=16)), changes.Published(node_state("numa:1 cores:9", name="new"), "9")
    )
    waiting(parts, pod)
    parts.scale_up.check()
    assert watched(cluster, "wide").asks_for_node
    assert not watched(cluster, "wide").unschedulable, "no scheduler has said so"


@pytest.mark.parametrize("gone", ["deleted", "replaced", "ungated", "gated by others", "assumed"])
def test_a_pod_that_no_longer_waits_is_left_alone(parts: Parts, cluster: Cluster, gone: str) -> None:
    pod = gated(cluster, "wide", 4)
    waiting(parts, pod)
    change: changes.Change
    match gone:
        case "deleted":
            change = changes.PodRemoved("default", "wide", pod.uid, parts.clock.now)
        case "replaced":
            change = changes.PodUpdated(replace(pod, uid="another"), parts.clock.now)
        case "ungated":
            change = changes.PodUpdated(replace(pod, gates=()), parts.clock.now)
        case "gated by others":
            change = changes.PodUpdated(replace(pod, gates=("example.com/queue", FIT_GATE)), parts.clock.now)
        case _:
            change = changes.PodAssumed(pod.pod, (EMPTY_B.name,), parts.clock.now)
    parts.apply(change)
    parts.scale_up.check()
    assert watched(cluster, "wide").version == pod.version


def test_a_pod_that_has_changed_meanwhile_is_not_written(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "wide", 4)
    waiting(parts, replace(pod, version="1"))
    parts.scale_up.check()
    assert watched(cluster, "wide").version == pod.version


def test_a_relaunched_pod_asks_too(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "wide", 4)
    waiting(parts, replace(pod, gates=(RELAUNCH_GATE,)))
    parts.scale_up.check()
    assert watched(cluster, "wide").asks_for_node
    assert not watched(cluster, "wide").unschedulable, "no scheduler has said so"


def test_a_namespace_of_many_pods_leaves_half_of_the_writes_to_others(
    parts: Parts, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(Client, "patch_status", lambda _, __, name, *___: written.append(name))
    pod = gated(cluster, "wide", 4)
    many = [replace(pod, name=f"p{number}", uid=f"u{number}") for number in range(2 * WRITE_BURST)]
    other = replace(pod, name="other", namespace="elsewhere", uid="o")
    parts.watch(*many, other)
    parts.scale_up.wait([*many, other], infeasible=False)
    parts.clock.now += PATIENCE_SECONDS
    parts.scale_up.check()
    assert "other" in written
    assert len(written) <= WRITE_BURST


def test_without_the_right_it_is_said_once_and_tried_again_later(
    parts: Parts, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(*_: Any) -> None:
        raise Forbidden(403, "Forbidden", "no")

    waiting(parts, gated(cluster, "wide", 4))
    with monkeypatch.context() as patched:
        patched.setattr(Client, "patch_status", forbidden)
        patched.setattr(OptionalRight, "_is_granted", lambda _: False)
        for _ in range(2):
            parts.scale_up.check()
            parts.clock.now += OFF_SECONDS
    assert [record.levelname for record in caplog.records if record.name.endswith("scale_up")] == ["WARNING"]
    parts.clock.now += OFF_SECONDS
    parts.scale_up.check()
    assert watched(cluster, "wide").asks_for_node
    assert not watched(cluster, "wide").unschedulable, "no scheduler has said so"
