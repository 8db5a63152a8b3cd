"""Kueue's kinds as a real API server has them."""

from collections.abc import Iterator

import pytest
from tests.clusters import Cluster, served
from tests.reconcile.kueue.scene import Kueue
from tests.waiting import eventually
from verify.kueue.kueue import kinds

from topomend.kube.kueue import ADMISSION_CHECKS, RESOURCE_FLAVORS, WORKLOADS
from topomend.wire.queued_workload import API_VERSION, CONTROLLER

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
