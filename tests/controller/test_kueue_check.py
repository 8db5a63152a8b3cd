"""The duty waits for Kueue's kinds and for the cluster, and then learns by watches what Kueue asks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.clock import Clock
from tests.clusters import Cluster, served
from tests.reconcile.parts import EMPTY_A, EMPTY_B, Parts
from tests.waiting import eventually, stretched
from verify.kueue.kueue import kinds

from topomend.cache.snapshot import PodKey
from topomend.controller.kueue_check import SERVED_SECONDS, KueueCheck
from topomend.decide.eligibility import Limits
from topomend.kube.kueue import ADMISSION_CHECKS, WORKLOADS
from topomend.reconcile.kueue.numa_fit import NumaFit
from topomend.reconcile.kueue.queued import Queued
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.wire.queued_workload import API_VERSION, CONTROLLER

pytestmark = pytest.mark.cluster

USED = ("admissionchecks", "workloads")


@contextmanager
def kueues_kinds(cluster: Cluster) -> Iterator[None]:
    definitions = [kind for kind in kinds() if kind["spec"]["names"]["plural"] in USED]
    with served(cluster.client, definitions, WORKLOADS):
        eventually("both kinds", lambda: [cluster.client.list(ADMISSION_CHECKS)])
        yield


def created(cluster: Cluster, kind: str, name: str = "numa", **content: Any) -> dict[str, Any]:
    resource, namespace = (WORKLOADS, "default") if kind == "Workload" else (ADMISSION_CHECKS, "")
    head = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}}
    return cluster.client.create(resource, head | content, namespace)


def ask_about(cluster: Cluster, name: str) -> None:
    """A workload of one pod, whose quota is reserved."""
    container = {"name": "main", "image": "i", "resources": {"limits": {"cpu": "3", "memory": "64Mi"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    created(cluster, "Workload", name, spec={"podSets": [pod_set]})
    now = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "Test", **now}
    asked = {"name": "numa", "state": "Pending", **now}
    status = {"conditions": [reserved], "admissionChecks": [asked]}
    cluster.client.merge(WORKLOADS, name, {"status": status}, "default", "status")


def test_what_kueue_asks_is_answered_once_its_kinds_are_served(two_nodes: Cluster) -> None:
    client, clock, parts, known = two_nodes.client, Clock(), Parts(two_nodes, EMPTY_A, EMPTY_B), [False]
    queued, namespaces = Queued(client), NamespaceLimits(client, Limits())
    reservations = parts.collaborators.reservations
    numa_fit = NumaFit(
        client, parts.store, queued, reservations, namespaces=namespaces, reserved=tuple, metrics=parts.metrics
    )
    check = KueueCheck(client, queued, numa_fit, lambda: known[0], clock)
    known[0] = True
    check.check()  # the kinds are not served, and it is not asked again at once
    with kueues_kinds(two_nodes):
        created(two_nodes, "AdmissionCheck", spec={"controllerName": CONTROLLER})
        check.check()
        assert "status" not in client.get(ADMISSION_CHECKS, "numa")
        clock.now += SERVED_SECONDS + 1
        known[0] = False
        check.check()  # a cluster that is not listed has no node that admits anything
        assert "status" not in client.get(ADMISSION_CHECKS, "numa")
        known[0] = True

        def state() -> str:
            check.check()
            checks = client.get(WORKLOADS, "numa", "default").get("status", {}).get("admissionChecks", ())
            return str(checks[0]["state"]) if checks else ""

        def is_active() -> bool:
            clock.now += SERVED_SECONDS + 1  # discovery may name a kind a moment after it is served
            check.check()
            return "status" in client.get(ADMISSION_CHECKS, "numa")

        eventually("the check to be active", is_active)
        ask_about(two_nodes, "numa")
        eventually("the answer", lambda: state() == "Ready")
        check.stop()


class Slow(NumaFit):
    """Lists what there is, and keeps one workload out of its queue, to which the API server gives no answer yet."""

    def __init__(self, queued: Queued) -> None:
        self.queued, self.kept_out = queued, list[PodKey]()
        self.begun, self.answered = threading.Event(), threading.Event()

    def check(self) -> None:
        self.queued.refresh()

    def is_to_be_kept_out(self, key: PodKey) -> bool:
        return key[1] == "unfit"

    def keep_out(self, key: PodKey) -> None:
        self.begun.set()
        assert self.answered.wait(stretched(60.0))
        self.kept_out.append(key)


def test_no_watch_waits_for_the_answer_to_a_request(two_nodes: Cluster) -> None:
    queued = Queued(two_nodes.client)
    numa_fit = Slow(queued)
    with kueues_kinds(two_nodes):
        created(two_nodes, "AdmissionCheck", spec={"controllerName": CONTROLLER})
        clock = Clock()
        check = KueueCheck(two_nodes.client, queued, numa_fit, lambda: True, clock)

        def is_watched() -> bool:
            clock.now += SERVED_SECONDS + 1
            check.check()
            return bool(queued.checks)

        eventually("the check to be known", is_watched)
        ask_about(two_nodes, "unfit")
        eventually("the request to be under way", numa_fit.begun.is_set)
        ask_about(two_nodes, "later")
        eventually("the watch to bring a later workload", lambda: queued.get(("default", "later")))
        assert numa_fit.kept_out == []
        numa_fit.answered.set()
        eventually("the request to end", lambda: ("default", "unfit") in numa_fit.kept_out)
        check.stop()
