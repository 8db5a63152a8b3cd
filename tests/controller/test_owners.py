"""Refused pods of every kind of owner, on the real controllers: bounded, never made by us, cleared away, and run.

How many are refused before the gate holds follows from who makes the next pod, and when:

- a ReplicaSet, a StatefulSet and a controller of one's own make it as soon as they see the failed one, so it is as many
  as they make until the owner is on the list and the API server knows: two as a rule, at most three a replica;
- a DaemonSet makes the second at once and the third a second later, which is longer than that takes: two a node;
- a Job waits ten seconds before the second, and so does its backoffLimit: of it no more is used up than there were pods
  at once.

Where the machine has more to do than it can, the operator is slow and the controllers are not always: a storm above
the bound is seen three times before it counts. That no pod is refused once the list is in force always counts.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest
from tests.controller.conftest import NODE_A, SYSTEM, Cluster, Operator, events_of, pod, wait_for
from tests.controller.storms import Storm, storm_in
from tests.patience import stretched

from topomend.kube.client import BRAKES, NAMESPACES, PODS, Client, Resource
from topomend.kube.errors import APIError

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("brake")]

IN_FORCE_SECONDS = 1.0
"""How long an API server may take to know of a change of the list; on a machine with time to spare, milliseconds."""

HOLE_SECONDS = 5.0
LOOKS = 3

_numbers = count(1)


@dataclass
class Owner:
    """A kind of owner whose pods ask for three CPUs of numa-a: ``spec`` is all of it but the pod's template."""

    kind: str
    resource: Resource
    spec: dict[str, Any] = field(default_factory=dict)
    restart_policy: str = "Always"
    most_refused: int = 3
    pods: int = 1
    quiet: float = 4.0

    def create(self, client: Client, namespace: str) -> dict[str, Any]:
        template = pod("", 3)["spec"]
        template |= {"nodeSelector": {"kubernetes.io/hostname": NODE_A}, "restartPolicy": self.restart_policy}
        labels = {"app": "web"}
        selector = {} if self.kind == "Job" else {"selector": {"matchLabels": labels}}
        spec = {**self.spec, **selector, "template": {"metadata": {"labels": labels}, "spec": template}}
        content = {"apiVersion": self.resource.api_version, "kind": self.kind, "metadata": {"name": "web"}}
        return client.create(self.resource, {**content, "spec": spec}, namespace)

    @contextmanager
    def owning(self, client: Client, namespace: str) -> Iterator[dict[str, Any]]:
        """The owner, until it is deleted."""
        made = self.create(client, namespace)
        try:
            yield made
        finally:
            client.delete(self.resource, "web", namespace, uid=made["metadata"]["uid"])


class Remaker(Owner):
    """A controller of one's own: it owns its pods by a ConfigMap, and makes one whenever it has none that lives."""

    @contextmanager
    def owning(self, client: Client, namespace: str) -> Iterator[dict[str, Any]]:
        owner = client.create(
            CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}, namespace
        )
        ended = Event()
        thread = Thread(target=self._remake, args=(client, namespace, owner, ended))
        thread.start()
        try:
            yield owner
        finally:
            ended.set()
            thread.join()

    def _remake(self, client: Client, namespace: str, owner: dict[str, Any], ended: Event) -> None:
        uid = owner["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": uid, "controller": True}
        content = pod("", 3, generateName="web-", ownerReferences=[reference], labels={"app": "web"})
        del content["metadata"]["name"]
        content["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_A}
        while not ended.wait(0.05):
            with suppress(APIError):
                found = client.list(PODS, namespace=namespace).items
                if all(each["status"].get("phase") == "Failed" for each in found):
                    client.create(PODS, content, namespace)


APPS, BATCH = "apps/v1", "batch/v1"
CONFIG_MAPS = Resource("v1", "configmaps")
FAIL_ON_42 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
IGNORE_DISRUPTIONS = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}

OWNERS = {
    "Deployment": Owner("Deployment", Resource(APPS, "deployments"), {"replicas": 1}),
    "ReplicaSet of three": Owner("ReplicaSet", Resource(APPS, "replicasets"), {"replicas": 3}, most_refused=9, pods=3),
    "StatefulSet": Owner("StatefulSet", Resource(APPS, "statefulsets"), {"replicas": 1, "serviceName": "web"}),
    "DaemonSet": Owner("DaemonSet", Resource(APPS, "daemonsets"), most_refused=2),
    "Job": Owner(
        "Job",
        Resource(BATCH, "jobs"),
        {"backoffLimit": 1, "podFailurePolicy": {"rules": [FAIL_ON_42, IGNORE_DISRUPTIONS]}},
        restart_policy="Never",
        most_refused=1,
        quiet=15.0,
    ),
    "controller of one's own": Remaker("ConfigMap", CONFIG_MAPS),
}


@pytest.fixture
def operator_of(fragmented: Cluster, start_operator: Callable[..., Operator], monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operator that watches, whose brake lets an owner go after so many quiet seconds."""

    def start(quiet: float) -> Operator:
        monkeypatch.setenv("BRAKE_QUIET_SECONDS", str(quiet))
        operator = start_operator(module="tests.controller.short_quiet")
        operator.wait_until_it_watches()
        wait_for("the brake's list", lambda: fragmented.client.get(BRAKES, "topomend-brake", SYSTEM))
        return operator

    return start


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS.keys())
def test_an_owners_refused_pods_are_few_and_the_next_ones_wait_for_a_hole_and_run(
    owner: Owner, fragmented: Cluster, operator_of: Callable[[float], Operator]
) -> None:
    operator = operator_of(owner.quiet)
    storms = []
    for _ in range(LOOKS):
        storms.append(_look(owner, fragmented))
        if len(storms[-1].bound) - 1 <= owner.most_refused:
            break
        fragmented.occupy(NODE_A, "filler-1", 2)
    refused = [len(each.bound) - 1 for each in storms]
    print(f"refused: {refused}; refused to listed, s: {[round(each.reaction, 3) for each in storms]}")
    assert min(refused) <= owner.most_refused, operator.text()
    assert "Traceback" not in operator.text()


def _look(owner: Owner, cluster: Cluster) -> Storm:
    """One storm in a namespace of its own, until its owner has left the list: what always holds, and how it went."""
    namespace = f"owner-{next(_numbers)}"
    cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    wait_for("its account", lambda: cluster.client.get(Resource("v1", "serviceaccounts"), "default", namespace))
    assert cluster.sandbox.audit_log
    with owner.owning(cluster.client, namespace) as made:
        gated = wait_for("its pods to be gated", lambda: _gated(cluster, namespace, owner.pods))
        uid = gated[0]["metadata"]["ownerReferences"][0]["uid"]
        assert uid in _listed(cluster)
        wait_for("the refused pods to be cleared away", lambda: owner.kind == "Job" or not _failed(cluster, namespace))
        assert not _refusals_late(cluster, namespace)
        begun = time.monotonic()
        cluster.vacate(NODE_A, "filler-1")
        running = wait_for("a pod to run", lambda: _running(cluster, namespace))
        took = time.monotonic() - begun
        print(f"hole to running, s: {took:.2f}")
        assert took < stretched(HOLE_SECONDS)
        assert running["metadata"]["name"] in {each["metadata"]["name"] for each in gated}
        wait_for("its wait to be told", lambda: events_of(cluster, gated[0], "UngateDeferred"))
        if owner.pods == 1 and owner.kind != "Job":
            wait_for("the owner to leave the list", lambda: uid not in _listed(cluster), owner.quiet + 60)
        else:
            assert uid in _listed(cluster)
        if owner.kind == "Job":
            _job_goes_on(cluster, namespace, made)
    wait_for("no pod to be left", lambda: not _removed(cluster, namespace))
    storm = storm_in(cluster.sandbox.audit_log, namespace)
    assert storm.creators == ({"topomend-sandbox-admin"} if owner.kind == "ConfigMap" else {_account(owner)})
    assert not cluster.records()
    return storm


def _account(owner: Owner) -> str:
    name = (
        "replicaset" if owner.kind == "Deployment" else {"DaemonSet": "daemon-set"}.get(owner.kind, owner.kind.lower())
    )
    return f"system:serviceaccount:kube-system:{name}-controller"


def _refusals_late(cluster: Cluster, namespace: str) -> list[float]:
    """The pods that were bound once the list was in force: what no load excuses."""
    time.sleep(2 * IN_FORCE_SECONDS)
    assert cluster.sandbox.audit_log
    storm = storm_in(cluster.sandbox.audit_log, namespace)
    assert storm.listed
    in_force = storm.listed + stretched(IN_FORCE_SECONDS)
    return [each - storm.listed for each in storm.bound if each > in_force]


def _job_goes_on(cluster: Cluster, namespace: str, made: dict[str, Any]) -> None:
    """Its limit holds one failure, the first; a second one would have ended it."""

    def counted() -> dict[str, Any] | None:
        status: dict[str, Any] = cluster.client.get(jobs, made["metadata"]["name"], namespace)["status"]
        return status if (status.get("failed"), status.get("active")) == (1, 1) else None

    jobs = Resource(BATCH, "jobs")
    status = wait_for("the Job to count its pods", counted)
    assert not [each for each in status.get("conditions", ()) if each["type"] in ("Failed", "FailureTarget")]


def _pods(cluster: Cluster, namespace: str) -> tuple[dict[str, Any], ...]:
    return cluster.client.list(PODS, namespace=namespace).items


def _gated(cluster: Cluster, namespace: str, pods: int) -> list[dict[str, Any]]:
    found = [each for each in _pods(cluster, namespace) if each["spec"].get("schedulingGates")]
    return found if len(found) == pods else []


def _failed(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return [each for each in _pods(cluster, namespace) if each["status"].get("phase") == "Failed"]


def _running(cluster: Cluster, namespace: str) -> dict[str, Any] | None:
    return next((each for each in _pods(cluster, namespace) if each["status"].get("phase") == "Running"), None)


def _listed(cluster: Cluster) -> dict[str, str]:
    return cluster.client.get(BRAKES, "topomend-brake", SYSTEM).get("owners") or {}


def _removed(cluster: Cluster, namespace: str) -> tuple[dict[str, Any], ...]:
    found = _pods(cluster, namespace)
    for each in found:
        cluster.client.merge(PODS, each["metadata"]["name"], {"metadata": {"finalizers": None}}, namespace)
        cluster.remove(each)
    return found
