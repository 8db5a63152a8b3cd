"""What strangers write as the owner of their pods changes nothing for pods of other namespaces.

On a real API server: tests/attacks/test_owners.py.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.builders import gated_pod, refused_pod, watched_pod
from tests.clock import Clock
from tests.reconcile.emitted import Emitted

from topomend.cache.changes import PodUpdated
from topomend.decide.queue.victims import Running
from topomend.kube.client import Client
from topomend.kube.resources import BRAKES, NAMESPACES, Resource
from topomend.model.pods.scheduling import Owner
from topomend.reconcile.gated.evictions import Evictions
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.reconciler import Reconciler
from topomend.reconcile.refused.brake import QUIET_SECONDS, Brake
from topomend.reconcile.settings import Settings
from topomend.reconcile.store import Store

UID = "11111111-2222-3333-4444-555555555555"

WEB = Owner("ReplicaSet", "web", UID, "apps/v1")
"""A controller of the namespace ``ns``; strangers of the namespace ``theirs`` name it as theirs."""

PODS = {"own": gated_pod("web-1", owner=WEB), "stranger": gated_pod("evil", owner=WEB, namespace="theirs")}


@dataclass
class Server:
    """An API server whose list has the controller, and what is taken off it."""

    removed: list[str] = field(default_factory=list)

    def get(self, resource: Resource, *_: str) -> dict[str, Any]:
        contents: dict[Resource, dict[str, Any]] = {
            NAMESPACES: {"metadata": {}},
            BRAKES: {"owners": {UID: "ns/ReplicaSet/web"}},
        }
        return contents[resource]

    def merge(self, _: Resource, __: str, patch: dict[str, Any], ___: str) -> None:
        self.removed += [uid for uid, name in patch["owners"].items() if name is None]


@pytest.mark.parametrize(("pod", "removed"), [("own", []), ("stranger", [UID])])
def test_a_controller_stays_braked_for_gated_pods_of_its_own_namespace_only(pod: str, removed: list[str]) -> None:
    server, clock = Server(), Clock()
    brake = Brake(cast("Client", server), "topomend-system", lambda: "", clock)
    brake.release(())
    clock.now += QUIET_SECONDS + 1
    brake.release([PODS[pod]])
    assert server.removed == removed


@pytest.mark.parametrize(("pod", "is_listed"), [("own", True), ("stranger", False)])
def test_pods_of_another_namespace_hear_nothing_of_what_is_braked(pod: str, *, is_listed: bool) -> None:
    brake = Brake(cast("Client", Server()), "topomend-system", lambda: "", Clock())
    brake.release(())
    assert brake.lists(PODS[pod]) is is_listed
    assert bool(brake.because(PODS[pod])) is is_listed


@pytest.mark.parametrize(("evicted", "stays"), [("own", True), ("stranger", False)])
def test_an_eviction_spares_no_pods_of_another_namespace_that_name_the_same_owner(evicted: str, *, stays: bool) -> None:
    evictions = Evictions(
        cast("Client", Server()),
        cast("Any", None),
        has_opted_out=lambda _: False,
        is_gated_by_us=lambda _: True,
        clock=Clock(1.0),
    )
    urgent, replica = watched_pod("urgent", priority=10), watched_pod("web-2", owner=WEB, node="a")
    evictions.remember(urgent, [PODS[evicted]])
    assert (replica.uid in evictions.among(urgent, Running({"a": [replica]})).staying) is stays


@pytest.mark.parametrize(("namespace", "waits"), [("ns", True), ("theirs", False)])
def test_a_gated_pod_waits_longer_after_refusals_of_its_own_namespace_only(namespace: str, *, waits: bool) -> None:
    store, emitted, victim = Store(), Emitted(), PODS["own"]
    reconciler = Reconciler(
        cast("Client", Server()),
        store,
        emitted.announcer,
        Settings(),
        lambda _: None,
        metrics=Metrics(lambda: store.snapshot, lambda: 0, lambda: True),
        why_not_gating=lambda: "no policy",
    )
    store.apply(PodUpdated(victim, 0.0))
    reconciler.brake(refused_pod("evil", owner=WEB, namespace=namespace, released=True))
    assert reconciler.reconcile(PodID.of(victim)).on_capacity is not waits, "it is decided on at once"
