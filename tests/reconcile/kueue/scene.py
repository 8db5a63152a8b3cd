"""A check of ours on a real API server that serves Kueue's kinds; the test does what Kueue's controllers would do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.builders import guaranteed_pod, running
from tests.clusters import Cluster
from tests.reconcile.parts import EMPTY_A, EMPTY_B, Parts

from topomend.cache import changes
from topomend.cache.changes import Published
from topomend.decide.eligibility import Limits
from topomend.decide.queue.order import Reservation
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists
from topomend.kube.kueue import WORKLOADS
from topomend.kube.resources import NAMESPACES
from topomend.reconcile.kueue.numa_fit import NumaFit
from topomend.reconcile.kueue.queued import Queued
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.wire.group import STEER_LABEL
from topomend.wire.queued_workload import API_VERSION

NOW = "2026-01-01T00:00:00Z"


@dataclass
class Kueue:
    """A check of ours, the workloads that the test makes, and the part that answers."""

    cluster: Cluster
    parts: Parts = field(init=False)
    queued: Queued = field(init=False)
    numa_fit: NumaFit = field(init=False)
    metrics: Metrics = field(init=False)
    versions: Iterator[int] = field(default_factory=lambda: count(10))

    def __post_init__(self) -> None:
        self.parts = Parts(self.cluster, EMPTY_A, EMPTY_B)
        self.answering(self.cluster.client)

    def answering(self, client: Client, reserved: Callable[[], Sequence[Reservation]] = tuple) -> None:
        """Answer by this client, as an operator that has just begun to lead."""
        clock = self.parts.clock
        self.queued = Queued(client, clock)
        reservations = self.parts.collaborators.reservations
        namespaces = NamespaceLimits(client, Limits(), clock)
        self.metrics = Metrics(lambda: self.parts.store.snapshot, lambda: 0, lambda: True)
        self.numa_fit = NumaFit(
            client,
            self.parts.store,
            self.queued,
            reservations,
            namespaces=namespaces,
            reserved=reserved,
            metrics=self.metrics,
            clock=clock,
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"topomend_operator_kueue_{name}", labels)

    def check(self) -> None:
        """One turn that sees all that was written before."""
        self.queued.missed()
        self.numa_fit.check()

    def publish(self, *names: str) -> None:
        """numa-a has these pods of three CPUs each, and no others."""
        state = running(EMPTY_A, *(guaranteed_pod(name, 3) for name in names))
        self.parts.apply(Published(state, str(next(self.versions))))

    def create(self, name: str, *pod_sets: tuple[int, int], namespace: str = "default", **spec: Any) -> None:
        """A workload with quota, of pod sets of so many pods of so many CPUs each."""
        sets = [
            {"name": f"set-{number}", "count": count, "template": {"spec": {"containers": [container(cpus)]}}}
            for number, (count, cpus) in enumerate(pod_sets)
        ]
        content = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": {"name": name}}
        spec = {"podSets": sets, "queueName": "queue", "active": True, **spec}
        self.cluster.client.create(WORKLOADS, content | {"spec": spec}, namespace)
        self.reserve(name, namespace=namespace)

    def reserve(self, name: str, *, namespace: str = "default", **check: Any) -> None:
        sets = self.get(name, namespace)["spec"]["podSets"]
        assigned = [
            {"name": each["name"], "count": each["count"], "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "1"}}
            for each in sets
        ]
        self.write(
            name,
            {
                "admission": {"clusterQueue": "pool", "podSetAssignments": assigned},
                "conditions": [condition("QuotaReserved")],
                "admissionChecks": [pending("numa", **check)],
            },
            namespace,
        )

    def steered(self) -> str:
        """A namespace whose pods wait for the operator."""
        metadata = {"name": "steered-queue", "labels": {STEER_LABEL: "enabled"}}
        with suppress(AlreadyExists):
            self.cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return "steered-queue"

    def evict(self, name: str) -> None:
        """What Kueue does upon a Retry: the quota is free again, and the workload is queued."""
        assert self.state(name)["state"] == "Retry"
        conditions = [condition("Evicted", "AdmissionCheck"), condition("QuotaReserved", status="False")]
        status = {
            "admission": None,
            "conditions": conditions,
            "admissionChecks": [pending("numa", retryCount=1)],
        }
        self.write(name, status)

    def write(self, name: str, status: dict[str, Any], namespace: str = "default") -> None:
        self.cluster.client.merge(WORKLOADS, name, {"status": status}, namespace, "status")

    def get(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.cluster.client.get(WORKLOADS, name, namespace)

    def state(self, name: str, namespace: str = "default") -> dict[str, Any]:
        (check,) = self.get(name, namespace)["status"]["admissionChecks"]
        return dict(check)

    def waits(self, name: str) -> bool:
        return "requeueAt" in self.get(name)["status"].get("requeueState", {})

    def held(self) -> dict[str, tuple[str, ...]]:
        return {name: assumed.nodes for (_, name), assumed in self.parts.store.snapshot.assumed.items()}

    def pass_time(self, seconds: float) -> None:
        self.parts.clock.now += seconds
        self.parts.apply(changes.TimePassed(self.parts.clock.now))


def container(cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "64Mi"}
    return {"name": "main", "image": "i", "resources": {"limits": amounts, "requests": amounts}}


def condition(kind: str, reason: str = "Test", status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": NOW}


def pending(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": "Pending", "message": "", "lastTransitionTime": NOW, **more}
