"""Whether a failed pod's controller creates another, asked of a real API server."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.clusters import Cluster, pod

from topomend.kube.client import Resource
from topomend.model.cluster import Owner
from topomend.reconcile.owners import why_not_recreated

pytestmark = pytest.mark.cluster

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
    elsewhere, other = replace(owner, name="nowhere"), replace(owner, uid="other")
    assert why_not_recreated(two_nodes.client, elsewhere, "default") == f"{owner.kind} nowhere does not exist"
    assert why_not_recreated(two_nodes.client, owner, "kube-system") == f"{name} does not exist"
    assert why_not_recreated(two_nodes.client, other, "default") == f"{name} is another one than the pod's"
    resource = REPLICA_SETS if owner.kind == "ReplicaSet" else CONTROLLERS
    two_nodes.client.merge(resource, owner.name, {"spec": {"replicas": 0}}, "default")
    assert why_not_recreated(two_nodes.client, owner, "default") == f"{name} wants no pods"
