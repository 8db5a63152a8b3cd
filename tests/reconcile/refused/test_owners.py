"""Whether a failed pod's controller creates another, asked of a real API server."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.clusters import Cluster, pod
from tests.intercepted import Intercepted
from tests.waiting import eventually

from topomend.kube.resources import Resource
from topomend.model.pods.scheduling import Owner
from topomend.reconcile.refused.owners import why_not_recreated

pytestmark = pytest.mark.cluster

JOBS = Resource("batch/v1", "jobs")
REPLICA_SETS = Resource("apps/v1", "replicasets")
CONTROLLERS = Resource("v1", "replicationcontrollers")
LABELS = {"app": "owners"}


@pytest.fixture(params=["ReplicaSet", "ReplicationController"])
def owner(request: pytest.FixtureRequest, two_nodes: Cluster) -> Iterator[Owner]:
    """A controller of one pod that no node admits, so that nothing starts."""
    resource = REPLICA_SETS if request.param == "ReplicaSet" else CONTROLLERS
    selector = {"matchLabels": LABELS} if request.param == "ReplicaSet" else LABELS
    spec = {**pod("", 1)["spec"], "nodeSelector": {"no": "such-node"}}
    template = {"metadata": {"labels": LABELS}, "spec": spec}
    content = {
        "apiVersion": resource.api_version,
        "kind": request.param,
        "metadata": {"generateName": "owners-"},  # the API server takes a while to remove the one of the test before
        "spec": {"replicas": 1, "selector": selector, "template": template},
    }
    metadata = two_nodes.client.create(resource, content, "default")["metadata"]
    yield Owner(request.param, metadata["name"], metadata["uid"], resource.api_version)
    two_nodes.client.delete(resource, metadata["name"], "default", uid=metadata["uid"])
    two_nodes.remove_all()  # a ReplicationController leaves its pods behind


def test_a_controller_that_wants_pods_creates_another(owner: Owner, two_nodes: Cluster) -> None:
    assert why_not_recreated(two_nodes.client, owner, "default") == ""


def test_a_controller_that_is_gone_replaced_or_wants_no_pods_creates_none(owner: Owner, two_nodes: Cluster) -> None:
    name = f"{owner.kind} {owner.name}"
    elsewhere, other = replace(owner, name="nowhere"), replace(owner, uid="00000000-0000-0000-0000-000000000000")
    assert why_not_recreated(two_nodes.client, elsewhere, "default") == f"{owner.kind} nowhere does not exist"
    assert why_not_recreated(two_nodes.client, owner, "kube-system") == f"{name} does not exist"
    assert why_not_recreated(two_nodes.client, other, "default") == f"{name} is another one than the pod's"
    resource = REPLICA_SETS if owner.kind == "ReplicaSet" else CONTROLLERS
    two_nodes.client.merge(resource, owner.name, {"spec": {"replicas": 0}}, "default")
    assert why_not_recreated(two_nodes.client, owner, "default") == f"{name} wants no pods"


@pytest.mark.parametrize(
    ("name", "api_version"),
    [
        ("web", "apps/v1?x="),
        ("web", "apps/.."),
        ("web", "apps/../../api/v1"),
        ("web", "../v1"),
        ("web", f"apps/v{'1' * 400}"),
        ("w" * 254, "apps/v1"),
    ],
    ids=["a query", "dots", "another path", "a group of dots", "a long version", "a long name"],
)
def test_a_reference_that_no_object_has_is_not_asked_about(name: str, api_version: str, two_nodes: Cluster) -> None:
    asked: list[str] = []
    client = Intercepted(two_nodes.client, lambda method, target: asked.append(f"{method} {target}"))
    forged = Owner("ReplicaSet", name, "00000000-0000-0000-0000-000000000000", api_version)
    assert " cannot exist: " in why_not_recreated(client, forged, "default")
    assert not asked


def job(cluster: Cluster, **spec: Any) -> Owner:
    """A Job of one pod that no node admits."""
    template = {"spec": {**pod("", 1)["spec"], "nodeSelector": {"no": "such-node"}, "restartPolicy": "Never"}}
    content = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "owners-"},
        "spec": {"template": template, **spec},
    }
    metadata = cluster.client.create(JOBS, content, "default")["metadata"]
    return Owner("Job", metadata["name"], metadata["uid"], "batch/v1")


@pytest.fixture
def jobs(two_nodes: Cluster) -> Iterator[Cluster]:
    yield two_nodes
    for content in two_nodes.client.list(JOBS, namespace="default").items:
        metadata = content["metadata"]
        two_nodes.client.delete(JOBS, metadata["name"], "default", uid=metadata["uid"])
    two_nodes.remove_all()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, ""),
        ({"backoffLimit": 1}, ""),
        ({"backoffLimit": 0}, "may not have one more failure: it has 0 of 0"),
        ({"suspend": True}, "is suspended"),
        (
            {"backoffLimitPerIndex": 1, "completionMode": "Indexed", "completions": 1},
            "counts its failures by index",
        ),
    ],
    ids=["six failures", "one failure", "none", "suspended", "by index"],
)
def test_a_job_creates_another_pod_as_long_as_it_may_have_one_more_failure(
    jobs: Cluster, spec: dict[str, Any], why: str
) -> None:
    owner = job(jobs, **spec)
    assert why_not_recreated(jobs.client, owner, "default") == (f"Job {owner.name} {why}" if why else "")


def test_a_job_that_has_used_up_its_failures_or_has_failed_creates_no_other(jobs: Cluster) -> None:
    owner = job(jobs, backoffLimit=1)
    made = eventually(
        "its pod", lambda: [content for content in jobs.pods() if owner.name in content["metadata"]["name"]]
    )
    jobs.remove(made[0])
    eventually(
        "the failure to be counted", lambda: jobs.client.get(JOBS, owner.name, "default")["status"].get("failed")
    )
    why = f"Job {owner.name} may not have one more failure: it has 1 of 1"
    assert why_not_recreated(jobs.client, owner, "default") == why
    failed = job(jobs, activeDeadlineSeconds=1)
    eventually("it to have ended", lambda: "has ended" in why_not_recreated(jobs.client, failed, "default"))
