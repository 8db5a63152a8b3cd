"""Refused pods of every real controller: few, never recreated by the operator, deleted or kept, and running in the end.

The controller's timing decides how many pods are refused before the brake takes effect:

- a ReplicaSet, a StatefulSet and a custom controller create the next pod at once, until the controller is on the list
  and the API server has read it: usually two pods for each replica, and one more for each 20 ms in which the machine
  keeps the operator from running, so that they are printed and not judged;
- a DaemonSet creates the second pod at once and the third a second later, when the list is in effect: two on each node;
- a Job waits ten seconds before the second pod, so its backoffLimit counts only the pods that it started at once.

No pod is refused once the list is in force.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest
from tests.clusters import COLLECTOR_SECONDS, NODE_A, SYSTEM, Cluster, events_of, pod
from tests.controller.storms import Storm, storm_in
from tests.operator_process import Operator
from tests.waiting import TimedOut, awake, eventually, stretched

from topomend.kube.client import Client
from topomend.kube.errors import APIError
from topomend.kube.resources import BRAKES, NAMESPACES, PODS, Resource

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("brake_of_module")]

IN_FORCE_SECONDS = 1.0
"""How long an API server may take to know of a change of the list; on a machine with time to spare, milliseconds."""

REACTION_SECONDS = 0.2
"""How long an owner may take to be listed after its first refused pod; 0.01 to 0.1 s on an idle machine."""

FURTHER_STORMS = 2
"""An operator that is always too slow is so in each of them; one that the machine held up is not."""

HOLE_SECONDS = 5.0

_numbers = count(1)


@dataclass
class Owner:
    """A kind of owner whose pods ask for three CPUs of numa-a: ``spec`` is all of it but the pod's template.

    ``most_refused`` is how many of its pods may be refused, where its controller waits between two of them.
    """

    kind: str
    resource: Resource
    spec: dict[str, Any] = field(default_factory=dict)
    restart_policy: str = "Always"
    most_refused: int | None = None
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
                pods = client.list(PODS, namespace=namespace).items
                if all(owned["status"].get("phase") == "Failed" for owned in pods):
                    client.create(PODS, content, namespace)


APPS, BATCH = "apps/v1", "batch/v1"
CONFIG_MAPS = Resource("v1", "configmaps")
FAIL_ON_42 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
IGNORE_DISRUPTIONS = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}

OWNERS = {
    "Deployment": Owner("Deployment", Resource(APPS, "deployments"), {"replicas": 1}),
    "ReplicaSet of three": Owner("ReplicaSet", Resource(APPS, "replicasets"), {"replicas": 3}, pods=3),
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
def operator_of(fragmented: Cluster, start_operator: Callable[..., Operator]) -> Any:
    """An operator that watches, whose brake lets an owner go after so many quiet seconds."""

    def start(quiet: float) -> Operator:
        operator = start_operator(constants={"reconcile.refused.brake.QUIET_SECONDS": quiet})
        operator.wait_until_it_watches()
        eventually("the brake's list", lambda: fragmented.client.get(BRAKES, "topomend-brake", SYSTEM))
        return operator

    return start


@pytest.mark.parametrize("owner", OWNERS.values(), ids=OWNERS.keys())
def test_an_owners_refused_pods_are_few_and_the_next_ones_wait_for_a_hole_and_run(
    owner: Owner, fragmented: Cluster, operator_of: Callable[[float], Operator]
) -> None:
    operator = operator_of(owner.quiet)
    storm = _go_through_a_storm(owner, fragmented)
    for _ in range(FURTHER_STORMS):
        if storm.reaction < REACTION_SECONDS:
            break
        print(f"first refusal to listed, s: {storm.reaction:.3f}; once more")
        fragmented.occupy(NODE_A, "filler-1", 2)
        storm = _go_through_a_storm(owner, fragmented)
    refused = len(storm.bound) - 1
    print(f"refused: {refused}; first refusal to listed, s: {storm.reaction:.3f}")
    assert storm.reaction < stretched(REACTION_SECONDS), operator.text()
    assert owner.most_refused is None or refused <= owner.most_refused, operator.text()
    assert "Traceback" not in operator.text()


def _go_through_a_storm(owner: Owner, cluster: Cluster) -> Storm:
    """One storm in a namespace of its own, until its owner has left the list."""
    namespace = f"owner-{next(_numbers)}"
    cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    eventually("its account", lambda: cluster.client.get(Resource("v1", "serviceaccounts"), "default", namespace))
    assert cluster.sandbox.audit_log
    with owner.owning(cluster.client, namespace) as made:
        gated = eventually("its pods to be gated", lambda: _gated(cluster, namespace, owner.pods))
        uid = gated[0]["metadata"]["ownerReferences"][0]["uid"]
        assert uid in _listed(cluster)
        if owner.kind not in ("Job", "ConfigMap"):
            try:
                eventually("the refused pods to be cleared away", lambda: not _failed(cluster, namespace))
            except TimedOut:
                print("not cleared away:", *_failed(cluster, namespace), sep="\n")
                raise
        begun, hole = awake(), time.time()
        cluster.vacate(NODE_A, "filler-1")
        running = eventually("a pod to run", lambda: _running(cluster, namespace))
        took = awake() - begun
        print(f"hole to running, s: {took:.2f}")
        assert took < stretched(HOLE_SECONDS)
        assert running["metadata"]["name"] in {content["metadata"]["name"] for content in gated}
        eventually("its wait to be reported", lambda: events_of(cluster, gated[0], "UngateDeferred"))
        if owner.pods == 1 and owner.kind != "Job":
            eventually("the owner to leave the list", lambda: uid not in _listed(cluster), owner.quiet + 60)
        else:
            assert uid in _listed(cluster)
        if owner.kind == "Job":
            _job_goes_on(cluster, namespace, made)
    eventually("no pod to be left", lambda: not _removed(cluster, namespace), COLLECTOR_SECONDS)
    storm = storm_in(cluster.sandbox.audit_log, namespace)
    assert not _refusals_late(storm, hole)
    assert storm.creators == ({"topomend-sandbox-admin"} if owner.kind == "ConfigMap" else {_account(owner)})
    assert not cluster.records()
    return storm


def _account(owner: Owner) -> str:
    name = (
        "replicaset" if owner.kind == "Deployment" else {"DaemonSet": "daemon-set"}.get(owner.kind, owner.kind.lower())
    )
    return f"system:serviceaccount:kube-system:{name}-controller"


def _refusals_late(storm: Storm, hole: float) -> list[float]:
    """When pods were bound before there was a hole, in seconds since their owner was listed, with the list in force.

    By then the owner had every pod that it wanted, gated: it had created all that could be bound.
    """
    assert storm.listed
    in_force = storm.listed + stretched(IN_FORCE_SECONDS)
    return [bound - storm.listed for bound in storm.bound if in_force < bound < hole]


def _job_goes_on(cluster: Cluster, namespace: str, made: dict[str, Any]) -> None:
    """Its limit holds one failure, the first; a second one would have ended it."""

    def counted() -> dict[str, Any] | None:
        status: dict[str, Any] = cluster.client.get(jobs, made["metadata"]["name"], namespace)["status"]
        return status if (status.get("failed"), status.get("active")) == (1, 1) else None

    jobs = Resource(BATCH, "jobs")
    status = eventually("the Job to count its pods", counted)
    assert not {condition["type"] for condition in status.get("conditions", ())} & {"Failed", "FailureTarget"}


def _pods(cluster: Cluster, namespace: str) -> tuple[dict[str, Any], ...]:
    return cluster.client.list(PODS, namespace=namespace).items


def _gated(cluster: Cluster, namespace: str, pods: int) -> list[dict[str, Any]]:
    gated = [content for content in _pods(cluster, namespace) if content["spec"].get("schedulingGates")]
    return gated if len(gated) == pods else []


def _failed(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    return [content for content in _pods(cluster, namespace) if content["status"].get("phase") == "Failed"]


def _running(cluster: Cluster, namespace: str) -> dict[str, Any] | None:
    pods = _pods(cluster, namespace)
    return next((content for content in pods if content["status"].get("phase") == "Running"), None)


def _listed(cluster: Cluster) -> dict[str, str]:
    return cluster.client.get(BRAKES, "topomend-brake", SYSTEM).get("owners") or {}


def _removed(cluster: Cluster, namespace: str) -> tuple[dict[str, Any], ...]:
    pods = _pods(cluster, namespace)
    for content in pods:
        cluster.client.merge(PODS, content["metadata"]["name"], {"metadata": {"finalizers": None}}, namespace)
        cluster.remove(content)
    return pods
