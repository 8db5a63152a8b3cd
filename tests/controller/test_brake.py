"""The storm brake: a Deployment whose replica no node admits makes a few refused pods, and not one every 100 ms."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import yaml
from tests.controller.conftest import DEPLOYMENTS, NODE_A, ROOT, Cluster, Operator, pod, wait_for
from tests.faults.judge import audited

from topomend.kube.client import CONFIG_MAPS, NAMESPACES, Resource
from topomend.kube.errors import AlreadyExists

pytestmark = pytest.mark.cluster

NAMESPACE = "topomend-system"
POLICIES = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", namespaced=False)
BINDINGS = Resource("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", namespaced=False)
MOST_REFUSED = 4
QUIET_SECONDS = 5.0

POLICY_SECONDS = 2.0
"""How long an API server takes to have a new policy in force: it looks every second."""


@pytest.fixture
def brake(two_nodes: Cluster) -> Iterator[None]:
    """The policy as it is deployed, its binding, and the operator's namespace."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, namespace)
    documents = yaml.safe_load_all((ROOT / "deploy" / "base" / "brake-policy.yaml").read_text())
    made = [
        (resource, two_nodes.client.create(resource, document))
        for resource, document in zip((POLICIES, BINDINGS), documents, strict=True)
    ]
    time.sleep(POLICY_SECONDS)
    yield
    for resource, content in made:
        two_nodes.client.delete(resource, content["metadata"]["name"], uid=content["metadata"]["uid"])


def _deployment(replicas: int) -> dict[str, Any]:
    replica = pod("", 3)
    replica["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_A}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": replica["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web-brake"}, "spec": spec}


@pytest.mark.usefixtures("brake")
def test_a_storm_of_refused_replicas_stops_and_the_replica_runs_once_it_fits(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    operator = start_operator()
    wait_for("the operator to list", lambda: "the cluster is listed" in operator.text())
    wait_for("the brake's list", lambda: fragmented.client.get(CONFIG_MAPS, "topomend-brake", NAMESPACE))
    time.sleep(POLICY_SECONDS)
    made = fragmented.client.create(DEPLOYMENTS, _deployment(1), "default")
    try:
        gated = wait_for("a replica to be gated", lambda: _replicas(fragmented, gated=True))
        assert len(gated) == 1
        refused = _created(fragmented)
        wait_for("silence", lambda: _is_quiet(fragmented, refused), QUIET_SECONDS + 10)
        assert len(_created(fragmented)) <= MOST_REFUSED, operator.text()
        owner = gated[0]["metadata"]["ownerReferences"][0]["uid"]
        assert owner in fragmented.client.get(CONFIG_MAPS, "topomend-brake", NAMESPACE)["data"]
        fragmented.vacate(NODE_A, "filler-1")
        running = wait_for("the replica to run", lambda: fragmented.running(gated[0]["metadata"]["name"]))
        assert running["spec"]["nodeName"] == NODE_A
        assert "Traceback" not in operator.text()
    finally:
        fragmented.client.delete(DEPLOYMENTS, "web-brake", "default", uid=made["metadata"]["uid"])
        wait_for("no replica to be left", lambda: not _replicas(fragmented))


def _replicas(cluster: Cluster, *, gated: bool = False) -> list[dict[str, Any]]:
    found = [each for each in cluster.pods() if each["metadata"].get("labels", {}).get("app") == "web"]
    return [each for each in found if each["spec"].get("schedulingGates")] if gated else found


def _created(cluster: Cluster) -> list[str]:
    """The audit ids of the pods that the ReplicaSet created."""
    assert cluster.sandbox.audit_log
    return [
        event["auditID"]
        for event in audited(cluster.sandbox.audit_log)
        if event["verb"] == "create"
        and event["objectRef"]["resource"] == "pods"
        and not event["objectRef"].get("subresource")
        and "replicaset" in event["user"]["username"]
        and event["stage"] == "ResponseComplete"
    ]


def _is_quiet(cluster: Cluster, before: list[str]) -> bool:
    """Whether no further pod was created for a while."""
    time.sleep(QUIET_SECONDS)
    return _created(cluster) == before
