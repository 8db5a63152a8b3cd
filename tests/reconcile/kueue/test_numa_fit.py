"""Kueue's question is answered once, held to, and asked again when a change makes the workload fit.

Kueue's kinds are served by a real API server; the test does what Kueue's controllers would do.
"""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from tests.builders import guaranteed_pod, running
from tests.clusters import NODE_B, Cluster, served
from tests.intercepted import Intercepted
from tests.reconcile.parts import EMPTY_A, EMPTY_B, Parts
from tests.waiting import eventually
from verify.kueue.kueue import kinds

from topomend.cache import changes
from topomend.cache.changes import Published
from topomend.cache.snapshot import Snapshot
from topomend.decide.eligibility import Limits
from topomend.decide.queue.order import Reservation
from topomend.kube.client import Client
from topomend.kube.errors import AlreadyExists
from topomend.kube.kueue import ADMISSION_CHECKS, RESOURCE_FLAVORS, WORKLOADS
from topomend.kube.resources import NAMESPACES
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.reconcile.kueue.numa_fit import ANSWERING_SECONDS, HELD_SECONDS, LIST_SECONDS, WAKING_SECONDS, NumaFit
from topomend.reconcile.kueue.queued import Queued
from topomend.reconcile.metrics.pods import DECISIONS, Metrics
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.wire.group import STEER_LABEL
from topomend.wire.queued_workload import API_VERSION, CONTROLLER

pytestmark = pytest.mark.cluster

NOW = "2026-01-01T00:00:00Z"
USED = {"admissionchecks", "resourceflavors", "workloads"}


@pytest.fixture(scope="module")
def kueues_kinds(two_nodes: Cluster) -> Iterator[None]:
    """The kinds that are read and written, as Kueue defines them, and nothing of Kueue that acts on them."""
    definitions = [kind for kind in kinds() if kind["spec"]["names"]["plural"] in USED]
    assert len(definitions) == len(USED)
    with served(two_nodes.client, definitions, WORKLOADS):
        eventually(
            "all kinds", lambda: [two_nodes.client.list(ADMISSION_CHECKS), two_nodes.client.list(RESOURCE_FLAVORS)]
        )
        yield


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


@pytest.fixture
def kueue(cluster: Cluster, kueues_kinds: None) -> Iterator[Kueue]:
    """A check of ours and one of another controller; all objects are removed afterwards."""
    del kueues_kinds
    client = cluster.client
    for name, controller in (("numa", CONTROLLER), ("other", "example.com/other")):
        head = {"apiVersion": API_VERSION, "kind": "AdmissionCheck", "metadata": {"name": name}}
        client.create(ADMISSION_CHECKS, head | {"spec": {"controllerName": controller}})
    yield Kueue(cluster)
    for resource in (WORKLOADS, ADMISSION_CHECKS, RESOURCE_FLAVORS):
        for item in client.list(resource).items:
            metadata = item["metadata"]
            client.delete(resource, metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"])


def test_our_checks_alone_are_made_active_once(kueue: Kueue) -> None:
    kueue.check()
    client = kueue.cluster.client
    conditions = client.get(ADMISSION_CHECKS, "numa")["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [("Active", "True")]
    assert "status" not in client.get(ADMISSION_CHECKS, "other")
    version = client.get(ADMISSION_CHECKS, "numa")["metadata"]["resourceVersion"]
    kueue.check()
    assert client.get(ADMISSION_CHECKS, "numa")["metadata"]["resourceVersion"] == version


def test_a_workload_that_fits_is_ready_and_its_places_are_held(kueue: Kueue) -> None:
    kueue.create("train", (1, 4), (2, 3))
    kueue.check()
    state = kueue.state("train")
    assert state["state"] == "Ready"
    assert state["message"].startswith("3 pods fit by replay: ")
    assert len(kueue.held()) == 3
    assert {name.partition("/")[0] for name in kueue.held()} == {"train"}


def test_pods_that_go_to_one_node_are_narrowed_to_it(kueue: Kueue) -> None:
    kueue.create("train", (1, 3))
    kueue.check()
    (update,) = kueue.state("train")["podSetUpdates"]
    (nodes,) = set(kueue.held().values())
    assert update == {"name": "set-0", "nodeSelector": {HOSTNAME_LABEL: nodes[0]}}


def test_pods_of_a_steered_namespace_are_narrowed_when_they_come(kueue: Kueue) -> None:
    client = kueue.cluster.client
    metadata = {"name": "steered-queue", "labels": {STEER_LABEL: "enabled"}}
    with suppress(AlreadyExists):
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    kueue.create("train", (1, 3), namespace="steered-queue")
    kueue.check()
    state = kueue.state("train", "steered-queue")
    assert state["state"] == "Ready"
    assert "podSetUpdates" not in state


def test_a_workload_that_does_not_fit_is_told_what_lacks_and_gives_its_quota_back(kueue: Kueue) -> None:
    kueue.create("train", (5, 3))
    kueue.check()
    state = kueue.state("train")
    assert state["state"] == "Retry"
    assert "requeueAfterSeconds" not in state, "Kueue would keep the quota so long"
    assert "of the 5 pods that wait together fit; train/set-0/" in state["message"]
    assert "closest: " in state["message"]
    assert kueue.held() == {}


def test_two_workloads_are_not_admitted_for_one_place(kueue: Kueue) -> None:
    kueue.create("first", (3, 3))
    kueue.check()
    kueue.create("second", (2, 3))
    kueue.check()
    assert (kueue.state("first")["state"], kueue.state("second")["state"]) == ("Ready", "Retry")


def test_the_workload_of_higher_priority_is_asked_about_first(kueue: Kueue) -> None:
    kueue.create("low", (3, 3), priority=1)
    kueue.create("urgent", (3, 3), priority=2)
    kueue.check()
    assert (kueue.state("low")["state"], kueue.state("urgent")["state"]) == ("Retry", "Ready")


def test_slow_decisions_leave_other_workloads_to_the_next_turn(kueue: Kueue) -> None:
    def slowly() -> Sequence[Reservation]:
        kueue.parts.clock.now += ANSWERING_SECONDS
        return ()

    kueue.answering(kueue.cluster.client, slowly)
    for name in ("first", "second"):
        kueue.create(name, (1, 3))
    kueue.check()
    assert sorted(kueue.state(name)["state"] for name in ("first", "second")) == ["Pending", "Ready"]
    kueue.check()
    assert [kueue.state(name)["state"] for name in ("first", "second")] == ["Ready", "Ready"]


def test_nodes_of_other_flavors_do_not_count(kueue: Kueue) -> None:
    flavor = {"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "any"}}
    spec = {"nodeLabels": {HOSTNAME_LABEL: NODE_B}}
    kueue.cluster.client.create(RESOURCE_FLAVORS, flavor | {"spec": spec})
    kueue.create("fits", (1, 3))
    kueue.create("too-many", (2, 3), priority=-1)
    kueue.check()
    assert set(kueue.held().values()) == {(NODE_B,)}
    assert (kueue.state("fits")["state"], kueue.state("too-many")["state"]) == ("Ready", "Retry")


def test_a_workload_is_requeued_by_the_change_that_makes_it_fit(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    kueue.create("train", (3, 3))
    kueue.check()
    kueue.evict("train")
    kueue.check()
    assert kueue.waits("train")
    kueue.pass_time(WAKING_SECONDS)
    kueue.publish()
    kueue.check()
    assert not kueue.waits("train")
    kueue.reserve("train")
    kueue.check()
    assert kueue.state("train")["state"] == "Ready"


def test_decisions_and_workloads_that_wait_are_counted(kueue: Kueue) -> None:
    kueue.create("fits", (1, 3), priority=1)
    kueue.create("waits", (9, 3))
    kueue.create("many", (501, 1))
    kueue.check()
    counts = {result: kueue.metric("decisions_total", result=result) for result in DECISIONS}
    assert counts == {"fits": 1, "unfit": 1, "unchecked": 1, "undecided": 0}
    assert kueue.metric("decision_seconds_count") == 2
    assert kueue.metric("workloads_waiting") == 0
    kueue.evict("waits")
    kueue.check()
    kueue.check()
    assert kueue.metric("workloads_waiting") == 1


def test_a_workload_that_waits_keeps_no_snapshot(kueue: Kueue) -> None:
    """Else as many clusters are in memory as workloads wait, each with all its pods."""
    asked_on: list[weakref.ref[Snapshot]] = []
    for number in range(3):
        kueue.publish(f"other-{number}")
        asked_on.append(weakref.ref(kueue.parts.store.snapshot))
        kueue.create(f"waits-{number}", (9, 3))
        kueue.check()
        kueue.evict(f"waits-{number}")
        kueue.check()
    kueue.publish()
    kueue.check()
    gc.collect()
    assert [each() for each in asked_on] == [None] * 3
    assert all(kueue.waits(f"waits-{number}") for number in range(3))


def test_a_change_before_kueue_took_the_quota_back_is_not_missed(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    kueue.create("train", (3, 3))
    kueue.check()
    kueue.publish()
    kueue.check()
    kueue.evict("train")
    kueue.check()
    kueue.check()
    assert not kueue.waits("train")


def test_a_workload_whose_quota_is_reserved_while_it_waits_is_answered(kueue: Kueue) -> None:
    """Kueue was faster than the operator, and takes no answer before the time to which a workload waits."""
    kueue.create("train", (1, 3))
    kueue.write("train", {"requeueState": {"requeueAt": "2126-01-01T00:00:00Z"}})
    kueue.check()
    assert not kueue.waits("train")
    kueue.check()
    assert kueue.state("train")["state"] == "Ready"


def test_a_workload_is_kept_out_at_the_first_word_of_its_eviction_whatever_comes_after(kueue: Kueue) -> None:
    kueue.create("train", (9, 3))
    kueue.check()
    kueue.evict("train")
    kueue.queued.see(WORKLOADS.plural, kueue.get("train"), gone=False)
    kueue.write("train", {"schedulingStats": {"evictions": []}})
    kueue.numa_fit.keep_out(("default", "train"))
    assert kueue.waits("train")


def test_a_workload_that_was_requeued_is_not_kept_out_again(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    kueue.create("train", (3, 3))
    kueue.check()
    kueue.evict("train")
    kueue.check()
    kueue.publish()
    kueue.pass_time(WAKING_SECONDS)
    kueue.check()
    for _ in range(2):
        kueue.check()
        assert not kueue.waits("train")


def test_no_more_workloads_are_requeued_than_fit_together(kueue: Kueue) -> None:
    kueue.publish("other-0", "other-1")
    for name in ("first", "second"):
        kueue.create(name, (3, 3))
        kueue.check()
        kueue.evict(name)
        kueue.check()
    kueue.pass_time(WAKING_SECONDS)
    kueue.publish()
    kueue.check()
    assert sorted(kueue.waits(name) for name in ("first", "second")) == [False, True]
    kueue.pass_time(WAKING_SECONDS)
    kueue.check()  # Kueue has not taken the first one's place
    assert not any(kueue.waits(name) for name in ("first", "second"))


def test_a_wait_that_another_check_has_caused_is_left_alone(kueue: Kueue) -> None:
    kueue.create("train", (1, 3))
    checks = [pending("numa"), pending("other", retryCount=1)]
    conditions = [condition("Evicted", "AdmissionCheck"), condition("QuotaReserved", status="False")]
    waiting = {"requeueAt": "2126-01-01T00:00:00Z"}
    kueue.write("train", {"conditions": conditions, "admissionChecks": checks, "requeueState": waiting})
    kueue.check()
    assert kueue.waits("train")


def test_places_are_held_as_long_as_the_quota_and_then_for_the_pods_to_come(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))
    kueue.check()
    held = kueue.held()
    for _ in range(4):  # another check takes its time
        kueue.pass_time(HELD_SECONDS * 0.6)
        kueue.check()
    assert kueue.held() == held
    kueue.write("train", {"conditions": [condition("QuotaReserved"), condition("Admitted")]})
    kueue.check()
    kueue.pass_time(HELD_SECONDS * 0.9)
    kueue.check()
    assert kueue.held() == held
    kueue.pass_time(HELD_SECONDS * 0.2)
    kueue.check()
    assert kueue.held() == {}


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [condition("QuotaReserved"), condition("Evicted", "Preempted")]},
        {"conditions": [condition("QuotaReserved", status="False")]},
        {"conditions": [condition("QuotaReserved"), condition("Finished")]},
    ],
    ids=["evicted", "without quota", "finished"],
)
def test_places_are_given_back_with_the_quota(kueue: Kueue, status: dict[str, Any]) -> None:
    kueue.create("train", (2, 3))
    kueue.check()
    assert kueue.held()
    kueue.write("train", status)
    kueue.check()
    assert kueue.held() == {}


def test_a_workload_is_not_answered_while_kueue_takes_its_quota_back(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))
    kueue.write("train", {"conditions": [condition("QuotaReserved"), condition("Evicted", "AdmissionCheck")]})
    kueue.check()
    assert kueue.state("train")["state"] == "Pending"


def test_a_later_operator_holds_the_places_that_an_earlier_one_has_promised(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))
    kueue.check()
    kueue.parts.apply(changes.PromiseEnded("default", "train"))
    kueue.answering(kueue.cluster.client)
    kueue.check()
    assert len(kueue.held()) == 2
    assert kueue.state("train")["state"] == "Ready"


def test_a_malformed_workload_stops_no_other(kueue: Kueue, caplog: pytest.LogCaptureFixture) -> None:
    kueue.create("fits", (1, 3))
    many = [{**container(1), "name": f"c{number}"} for number in range(201)]
    template = {"spec": {"containers": many}}
    head = {"apiVersion": API_VERSION, "kind": "Workload", "metadata": {"name": "huge"}}
    sets = [{"name": "main", "count": 1, "template": template}]
    kueue.cluster.client.create(WORKLOADS, head | {"spec": {"podSets": sets}}, "default")
    kueue.write("huge", {"admissionChecks": [pending("numa")], "conditions": [condition("QuotaReserved")]})
    kueue.check()
    assert kueue.state("fits")["state"] == "Ready"
    assert kueue.state("huge")["state"] == "Pending"
    assert "default/huge: its workload is left alone: " in caplog.text


def test_an_answer_for_an_older_version_is_not_written_and_holds_nothing(kueue: Kueue) -> None:
    kueue.create("train", (2, 3))

    def evicted_meanwhile(method: str, target: str) -> None:
        if method == "PATCH" and "/workloads/" in target:
            kueue.write("train", {"conditions": [condition("QuotaReserved", status="False")]})

    kueue.answering(Intercepted(kueue.cluster.client, evicted_meanwhile))
    kueue.check()
    assert kueue.state("train")["state"] == "Pending"
    assert kueue.held() == {}


def test_everything_is_listed_again_from_time_to_time(kueue: Kueue) -> None:
    kueue.check()
    kueue.create("train", (1, 3))
    kueue.numa_fit.check()
    assert kueue.state("train")["state"] == "Pending"
    kueue.parts.clock.now += LIST_SECONDS + 1
    kueue.numa_fit.check()
    assert kueue.state("train")["state"] == "Ready"


def test_a_watch_brings_what_is_new_and_what_is_gone(kueue: Kueue) -> None:
    kueue.check()
    kueue.create("train", (1, 3))
    kueue.queued.see(WORKLOADS.plural, kueue.get("train"), gone=False)
    kueue.numa_fit.check()
    assert kueue.state("train")["state"] == "Ready"
    kueue.queued.see(WORKLOADS.plural, kueue.get("train"), gone=True)
    assert kueue.queued.get(("default", "train")) is None
