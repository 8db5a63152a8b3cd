"""Placeholders stand for pods that autoscalers would not add nodes for, on a real API server."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import guaranteed_pod, node, node_state, running
from tests.clusters import NODE_A, NODE_B, SYSTEM, Cluster
from tests.intercepted import Intercepted
from tests.reconcile.parts import EMPTY_A, EMPTY_B, Parts
from tests.refused_pods import gated, gates, refused, watched

from topomend.cache import changes
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists, Forbidden, Invalid, NotPermitted, ServerFailed
from topomend.kube.resources import NAMESPACES, PODS, Resource
from topomend.model.pods.scheduling import Toleration, WatchedPod
from topomend.reconcile.autoscaling.placeholders import (
    CHECK_SECONDS,
    EXPENDABLE_PRIORITY,
    IDLE_SECONDS,
    MAX_PLACEHOLDERS,
    PATIENCE_SECONDS,
)
from topomend.reconcile.gated.gated_pods import GatedPods
from topomend.reconcile.pod_id import PodID
from topomend.relaunch.placeholder import read_placeholder
from topomend.runtime.backoff import Backoff
from topomend.wire.group import PLACEHOLDER_GATE
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = pytest.mark.cluster

HOLES_OF_TWO = running(EMPTY_B, guaranteed_pod("low", 2), guaranteed_pod("high", 2))
"""Three CPUs are free, at most two of them on one NUMA node."""


@pytest.fixture
def parts(cluster: Cluster) -> Iterator[Parts]:
    with suppress(AlreadyExists):
        cluster.client.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    yield Parts(cluster, HOLES_OF_TWO, placeholders=True)
    for content in placeholders(cluster):
        cluster.remove(content)


def placeholders(cluster: Cluster) -> list[dict[str, Any]]:
    return [content for content in cluster.pods() if content["metadata"]["namespace"] == SYSTEM]


def check(parts: Parts, seconds: float = CHECK_SECONDS) -> None:
    parts.clock.now += seconds
    parts.placeholders.check()


def waited(parts: Parts, *pods: WatchedPod, infeasible: bool = False) -> None:
    """No node admits these pods, and the time is over for which they wait first."""
    parts.watch(*pods)
    parts.scale_up.wait(pods, infeasible=infeasible)
    check(parts, PATIENCE_SECONDS)


def the_one(cluster: Cluster) -> dict[str, Any]:
    (content,) = placeholders(cluster)
    return content


def test_a_placeholder_asks_for_a_node_in_the_place_of_a_pod_that_lacks_a_numa_node(
    parts: Parts, cluster: Cluster
) -> None:
    pod = gated(cluster, "waits", 3)
    parts.watch(pod)
    parts.scale_up.wait((pod,), infeasible=False)
    check(parts, PATIENCE_SECONDS - 1)
    assert placeholders(cluster) == []
    check(parts)
    content = the_one(cluster)
    asked = read_watched_pod(content)
    assert (asked.gates, asked.unschedulable, asked.phase) == ((PLACEHOLDER_GATE,), True, "Pending")
    (container,) = content["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "3", "memory": str(64 << 20)}
    made = read_placeholder(content)
    assert made.stands_for == ("default", "waits", pod.uid)
    parts.scale_up.check()
    assert watched(cluster, "waits").version == pod.version  # one of the two is enough


def test_it_is_made_once_and_goes_with_its_pod(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "waits", 3)
    waited(parts, pod)
    made = the_one(cluster)
    waited(parts, pod)
    assert the_one(cluster) == made
    parts.apply(changes.PodAssumed(pod.pod, (NODE_B,), parts.clock.now))
    check(parts)
    check(parts)
    assert placeholders(cluster) == []


def test_a_refused_pod_that_no_other_node_admits_has_one_too(parts: Parts, cluster: Cluster) -> None:
    pod = refused(cluster, "refused")
    known = running(node_state("numa:1 cores:8 memory:8Gi", name=NODE_B), guaranteed_pod("left", 4))
    parts.apply(changes.NodeUpdated(node(NODE_B, cpus=7)), changes.Published(known, "9"))
    waited(parts, pod)
    made = read_placeholder(the_one(cluster))
    assert (made.stands_for, made.unschedulable) == (("default", "refused", pod.uid), True)


def test_it_goes_at_once_where_its_pod_is_let_go_to_a_node(parts: Parts, cluster: Cluster) -> None:
    """The pod would keep the placeholder away from the new node."""
    pod = gated(cluster, "waits", 3)
    waited(parts, pod)
    assert placeholders(cluster)
    parts.apply(changes.NodeUpdated(node(NODE_A)), changes.Published(EMPTY_A, "9"))
    backoff = Backoff(parts.clock)
    gated_pods = GatedPods(parts.collaborators, backoff, lambda pod: pod, parts.reported.append)
    gated_pods.reconcile(PodID("default", "waits", pod.uid))
    assert gates(cluster, "waits") == ()
    assert placeholders(cluster) == []


def test_no_node_is_asked_for_while_one_admits_the_pod(parts: Parts, cluster: Cluster) -> None:
    parts.apply(changes.NodeUpdated(node(NODE_A)), changes.Published(EMPTY_A, "9"))
    waited(parts, gated(cluster, "waits", 3))
    assert placeholders(cluster) == []


def test_after_a_restart_they_are_kept_and_completed(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "waits", 3)
    waited(parts, pod)
    made = the_one(cluster)
    cluster.client.patch_status(
        PODS,
        made["metadata"]["name"],
        {"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}},
        SYSTEM,
    )
    restarted = Parts(cluster, HOLES_OF_TWO, placeholders=True)
    check(restarted)  # no pod is known yet
    restarted.watch(pod)
    check(restarted)
    check(restarted)
    after = the_one(cluster)
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    assert read_placeholder(after).unschedulable


def test_those_of_nobody_are_removed_whoever_made_them(parts: Parts, cluster: Cluster) -> None:
    waited(parts, gated(cluster, "waits", 3))
    later = Parts(cluster, HOLES_OF_TWO, placeholders=True)
    check(later)
    assert len(placeholders(cluster)) == 1
    check(later)
    assert placeholders(cluster) == []


def test_no_node_is_asked_for_where_none_would_admit_the_pod(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "wide", 5)
    waited(parts, pod, infeasible=True)
    waited(parts, pod)
    assert placeholders(cluster) == []
    small = gated(cluster, "small", 3)
    waited(parts, small)
    assert len(placeholders(cluster)) == 1
    parts.apply(changes.Published(node_state("numa:1 cores:3 memory:8Gi", name=NODE_B), "9"))
    check(parts)
    assert placeholders(cluster) == []


def test_it_may_go_where_the_pod_may_go(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "waits", 3)
    rules = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [rules]}}
    selector, toleration = {"kubernetes.io/hostname": NODE_B}, Toleration("only", "Exists", effect="NoSchedule")
    placement = replace(pod.placement, node_selector=selector, tolerations=(toleration,))
    waited(parts, replace(pod, placement=placement, node_affinity=affinity))
    asked = read_watched_pod(the_one(cluster))
    assert asked.placement.node_selector == selector
    assert toleration in asked.placement.tolerations
    assert asked.node_affinity == affinity


@pytest.mark.parametrize("fields", [{"scheduler_rules": ("volumes",)}, {"priority": EXPENDABLE_PRIORITY - 1}])
def test_where_none_can_stand_for_a_pod_it_asks_itself(parts: Parts, cluster: Cluster, fields: dict[str, Any]) -> None:
    pod = replace(gated(cluster, "waits", 3), **fields)
    waited(parts, pod)
    parts.scale_up.check()
    assert placeholders(cluster) == []
    assert watched(cluster, "waits").asks_for_node


def test_a_namespace_of_many_pods_leaves_half_of_them_to_others(
    parts: Parts, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[str] = []

    def create(_: Client, __: Resource, content: dict[str, Any], ___: str) -> dict[str, Any]:
        created.append(content["metadata"]["annotations"]["topomend.io/placeholder-for"].partition("/")[0])
        return {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}}

    pod = gated(cluster, "p", 3)
    monkeypatch.setattr(Client, "create", create)
    monkeypatch.setattr(parts.placeholders._creations, "take", lambda _: 0.0)
    many = [gated_as(f"p{number}", pod) for number in range(MAX_PLACEHOLDERS)]
    others = [replace(gated_as(f"o{number}", pod), namespace="elsewhere") for number in range(MAX_PLACEHOLDERS)]
    waited(parts, *many, *others)
    assert created == ["default"] * (MAX_PLACEHOLDERS // 2) + ["elsewhere"] * (MAX_PLACEHOLDERS // 2)


def gated_as(name: str, pod: WatchedPod) -> WatchedPod:
    return replace(pod, name=name, uid=f"uid-of-{name}", pod=replace(pod.pod, name=name))


@pytest.mark.parametrize("error", [Invalid(422, "Invalid", "spec.x: no"), Forbidden(403, "Forbidden", "no right")])
def test_what_the_api_server_does_not_accept_is_told_once(
    parts: Parts,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Invalid | Forbidden,
) -> None:
    def deny(*_: object) -> None:
        raise error

    pod = gated(cluster, "waits", 3)
    with monkeypatch.context() as denied:
        denied.setattr(Client, "create", deny)
        waited(parts, pod)
        check(parts)
    assert [record.message for record in caplog.records if "placeholder" in record.message] == [
        f"no placeholder can stand for default/waits: {error}"
        if isinstance(error, Invalid)
        else f"no placeholders stand for pods that wait: {error}"
    ]


def test_while_no_pod_waits_they_are_listed_once_a_minute(
    parts: Parts, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(parts)
    with monkeypatch.context() as watched_client:
        watched_client.setattr(Client, "read", lambda *_, **__: pytest.fail("listed"))
        check(parts, IDLE_SECONDS - 1)
        unused = Parts(cluster, HOLES_OF_TWO)
        unused.scale_up.wait((gated(cluster, "waits", 3),), infeasible=False)
        check(unused, IDLE_SECONDS)
    waited(parts, watched(cluster, "waits"))
    assert len(placeholders(cluster)) == 1


def test_a_pod_is_not_let_go_by_an_operator_that_may_not_remove_its_placeholder(parts: Parts, cluster: Cluster) -> None:
    pod = gated(cluster, "waits", 3)
    waited(parts, pod)
    check(parts)
    assert the_one(cluster)
    parts.placeholders._client = cluster.client.writing_while(lambda: False)
    with pytest.raises(NotPermitted):
        parts.placeholders.release(pod)
    parts.placeholders._client = Intercepted(cluster.client, _fail)
    parts.placeholders.release(pod)  # the next check removes it
    assert the_one(cluster)


def _fail(_: str, __: str) -> None:
    raise ServerFailed(500, "InternalError", "no")
