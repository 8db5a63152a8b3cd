"""The Lease that a drain takes, on a real API server: it goes with its namespace where that is deleted meanwhile."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.clusters import Cluster
from tests.intercepted import Intercepted
from tests.waiting import eventually

from topomend.drain import operators as of_drain
from topomend.drain.journal import Journal
from topomend.drain.operators import Operators
from topomend.kube.client import Client
from topomend.kube.errors import NotFound
from topomend.kube.resources import LEASES, NAMESPACES
from topomend.runtime.leader_election import NAME, read_holder

pytestmark = pytest.mark.cluster

NAMESPACE = "going"


@pytest.fixture(params=[(), ("example.com/kept",)], ids=["gone", "being deleted"])
def client(two_nodes: Cluster, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A namespace with the Lease of an operator that has ended. What has finalizers is only being deleted for long."""
    cluster = two_nodes.client
    metadata = {"name": NAMESPACE, "finalizers": list(request.param)}
    made = cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": NAME}}
    cluster.create(LEASES, lease | {"spec": {"holderIdentity": "ended", "leaseDurationSeconds": 15}}, NAMESPACE)
    yield cluster
    with suppress(NotFound):
        cluster.delete(NAMESPACES, NAMESPACE, uid=made["metadata"]["uid"])
    with suppress(NotFound):
        cluster.merge(NAMESPACES, NAMESPACE, {"metadata": {"finalizers": []}})
    eventually("the namespace to be gone", lambda: not _exists(cluster), 60)


def _exists(cluster: Client) -> bool:
    return NAMESPACE in {content["metadata"]["name"] for content in cluster.list(NAMESPACES).items}


def _delete_the_namespace(cluster: Client, finalizers: list[Any]) -> None:
    with suppress(NotFound):
        uid = cluster.get(NAMESPACES, NAMESPACE)["metadata"]["uid"]
        cluster.delete(NAMESPACES, NAMESPACE, uid=uid)
    eventually("the Lease to be gone", lambda: read_holder(cluster, NAMESPACE) is None, 60)
    eventually("the namespace to be as far", lambda: finalizers or not _exists(cluster), 60)


@pytest.mark.parametrize("verb", ["GET", "PATCH"])
def test_a_lease_that_goes_with_its_namespace_is_nothing_left_to_drain(
    client: Client, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the drain looks whether the Lease is renewed, and before it takes it."""
    for seconds in ("RENEW_DEADLINE_SECONDS", "RENEW_SECONDS", "RETRY_SECONDS"):  # its holder has ended
        monkeypatch.setattr(of_drain, seconds, 0.1)
    finalizers = client.get(NAMESPACES, NAMESPACE)["metadata"].get("finalizers", [])
    requests = list[str]()

    def delete_once(method: str, target: str) -> None:
        if not target.startswith(LEASES.path(NAMESPACE)):
            return
        requests.append(method)
        if requests[-1] == verb and requests.count("GET") >= 2:
            _delete_the_namespace(client, finalizers)

    journal = Journal(list[str]().append, dry=False)
    operators = Operators(Intercepted(client, delete_once), NAMESPACE, journal, 30)
    operators.stand_down()
    operators.stand_by()
    assert requests[-1] == "POST"
    assert journal.remaining == ()
