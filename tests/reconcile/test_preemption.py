"""Pods of lower priority are evicted for a pod that waits, through the Eviction API of a real API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import pod_manifest, running
from tests.clusters import NODE_B, Cluster, pod, priority_class
from tests.reconcile.parts import EMPTY_B, Parts
from tests.refused_pods import gated
from tests.waiting import eventually

from topomend.decide.eligibility import Limits
from topomend.kube.client import Client, Resource
from topomend.kube.errors import Forbidden
from topomend.model.cluster import PodGroup, WatchedPod
from topomend.model.pod import requests_of
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.preemption import PATIENCE_SECONDS, REST_SECONDS, Preemptor, _read
from topomend.wire.pod import read_pod

pytestmark = pytest.mark.cluster

BUDGETS = Resource("policy/v1", "poddisruptionbudgets")


class Waiting(Parts):
    """Two pods fill a node; a wider one of higher priority waits beside these parts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.filling = [
            cluster.create(pod(f"fill-{number}", 3, node=NODE_B, labels={"n": str(number)})) for number in range(2)
        ]
        super().__init__(cluster, running(EMPTY_B, *map(read_pod, self.filling)))
        for content in self.filling:
            eventually("the pods to run", lambda: cluster.running(content["metadata"]["name"]))  # noqa: B023
        limits = NamespaceLimits(cluster.client, Limits(), self.clock)
        self.preemptor = Preemptor(cluster.client, self.store, self.emitted.announcer, limits, self.clock)

    def wait(self, **fields: Any) -> WatchedPod:
        waiting = replace(gated(self.cluster, "urgent", 3), **{"priority": 10} | fields)
        self.watch(waiting)
        self.clock.now += PATIENCE_SECONDS
        return waiting

    def left(self) -> list[str]:
        """The filling pods that no one evicted."""
        here = {content["metadata"]["name"] for content in self.cluster.pods() if not _leaves(content)}
        return sorted(here & {content["metadata"]["name"] for content in self.filling})


def _leaves(content: dict[str, Any]) -> bool:
    return "deletionTimestamp" in content["metadata"]


@pytest.fixture
def waiting(two_nodes: Cluster) -> Iterator[Waiting]:
    yield Waiting(two_nodes)
    two_nodes.remove_all()


def test_one_pod_of_lower_priority_is_evicted(waiting: Waiting) -> None:
    urgent = waiting.wait()
    waiting.preemptor.check()
    assert waiting.left() == ["fill-1"]
    assert waiting.emitted.reasons() == ["Preempted", "Preempting"]
    note = waiting.emitted.notes("Preempted")[0]
    assert f"evicted from {NODE_B} for a pod of priority 10 (uid {urgent.uid})" in note
    assert "urgent" not in note, "users of another namespace do not learn its pods' names"


def test_no_second_pod_is_evicted_while_the_first_one_leaves(waiting: Waiting) -> None:
    waiting.wait()
    waiting.preemptor.check()
    waiting.clock.now += REST_SECONDS
    waiting.preemptor.check()
    assert waiting.left() == ["fill-1"]


def test_a_pod_is_given_time_to_find_a_node_first(waiting: Waiting) -> None:
    waiting.wait()
    waiting.clock.now -= 0.1
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"preempts": False},
        {"priority": 0},
        {"group": PodGroup("kueue.x-k8s.io", "train")},
        {"deleting": True},
        {"gates": ("example.com/other",)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_nothing_is_evicted_for_a_pod_that(waiting: Waiting, fields: dict[str, Any]) -> None:
    waiting.wait(**fields)
    waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


def test_pods_of_the_same_priority_stay_also_where_a_class_is_below_both(waiting: Waiting) -> None:
    with priority_class(waiting.cluster, "batch", -10):
        waiting.wait(priority=0)
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]


def test_a_disruption_budget_keeps_its_pods(waiting: Waiting) -> None:
    with _budget(waiting.cluster, {"n": "0"}):
        waiting.wait()
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0"]


def test_where_budgets_keep_all_pods_none_is_evicted(waiting: Waiting) -> None:
    with _budget(waiting.cluster, {"n": "0"}), _budget(waiting.cluster, {"n": "1"}):
        waiting.wait()
        waiting.preemptor.check()
    assert waiting.left() == ["fill-0", "fill-1"]
    assert waiting.emitted.events == []


def test_without_the_right_nothing_is_evicted_and_the_log_says_so_once(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise Forbidden(403, "Forbidden", "may not evict")

    monkeypatch.setattr(Client, "evict", forbidden)
    waiting.wait()
    for _ in range(3):
        waiting.preemptor.check()
        waiting.clock.now += 1000
    assert [record.getMessage() for record in caplog.records if record.name.endswith("preemption")] == [
        "no pod is evicted for pods of higher priority: 403 Forbidden: may not evict"
    ]


@contextmanager
def _budget(cluster: Cluster, labels: dict[str, str]) -> Iterator[None]:
    """A budget that allows none of its pods to be evicted, as its controller has understood it."""
    name = f"keep-{labels['n']}"
    head = {"apiVersion": BUDGETS.api_version, "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": labels}}
    made = cluster.client.create(BUDGETS, head | {"spec": spec}, "default")

    def is_understood() -> bool:
        status = cluster.client.get(BUDGETS, name, "default").get("status", {})
        return bool(status.get("observedGeneration"))

    try:
        eventually("the budget", is_understood)
        yield
    finally:
        cluster.client.delete(BUDGETS, name, "default", uid=made["metadata"]["uid"])


def test_of_a_running_pod_neither_its_rules_about_nodes_nor_each_container_are_kept() -> None:
    terms = [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 1_000}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = {"overhead": {"cpu": "1"}, "affinity": {"nodeAffinity": required}}
    large = pod_manifest("large", *["request:cpu=10m"] * 100, node="n", spec=spec, uid="1", namespace="default")
    (kept,) = _read(large)
    assert requests_of(kept.pod) == {"cpu": 2_000}
    assert (len(kept.pod.containers), kept.placement.terms, kept.node_affinity) == (1, None, {})
    assert (kept.namespace, kept.name, kept.uid, kept.node) == ("default", "large", "1", "n")
