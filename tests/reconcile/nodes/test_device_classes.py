"""Which extended resources DeviceClasses map, listed from a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clock import Clock
from tests.clusters import Cluster
from tests.deploy.api import administrator
from tests.waiting import eventually

from topomend.cache.changes import DeviceClassesListed
from topomend.kube import client as clients
from topomend.kube import device_classes
from topomend.kube.client import DEVICE_CLASSES, Client, Resource, connect
from topomend.kube.device_classes import mapped_resources
from topomend.kube.errors import Forbidden
from topomend.reconcile.nodes.device_classes import LIST_SECONDS, RETRY_SECONDS, DeviceClasses
from topomend.reconcile.store import Store

pytestmark = pytest.mark.cluster

IMPLICIT = "deviceclass.resource.kubernetes.io/accelerator"


@pytest.fixture
def device_class(two_nodes: Cluster) -> Iterator[None]:
    content = {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": "DeviceClass",
        "metadata": {"name": "accelerator"},
        "spec": {"extendedResourceName": "vendor.com/accelerator"},
    }
    made = two_nodes.client.create(DEVICE_CLASSES, content)
    yield
    two_nodes.client.delete(DEVICE_CLASSES, "accelerator", uid=made["metadata"]["uid"])


@pytest.fixture
def without_rights(two_nodes: Cluster, tmp_path: Path) -> Client:
    """A client with the token of an account that may read nothing."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = administrator(two_nodes.sandbox.kubeconfig).create(path, request).content["status"]["token"]
    kubeconfig = json.loads(two_nodes.sandbox.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    written = tmp_path / "kubeconfig"
    written.write_text(json.dumps(kubeconfig))
    return connect(str(written))


class Listing:
    """The part, and the changes that it reports, which are applied at once."""

    def __init__(self, client: Client) -> None:
        self.clock, self.store = Clock(0.0), Store()
        self.reported: list[DeviceClassesListed] = []
        self.part = DeviceClasses(client, self.store, self._report, self.clock)

    def _report(self, change: DeviceClassesListed) -> None:
        self.reported.append(change)
        self.store.apply(change)

    def after(self, seconds: float) -> frozenset[str]:
        self.clock.now += seconds
        self.part.refresh()
        return self.store.snapshot.by_claim


@pytest.mark.usefixtures("device_class")
def test_the_resources_of_a_class_are_known_soon_after_it_was_created(two_nodes: Cluster) -> None:
    expected = {"vendor.com/accelerator", IMPLICIT}
    eventually("the watch cache to have it", lambda: mapped_resources(two_nodes.client) == expected)
    listing = Listing(two_nodes.client)
    assert listing.after(0) == expected
    assert listing.after(LIST_SECONDS) == expected
    assert listing.reported == [DeviceClassesListed(frozenset(expected))]


@pytest.mark.usefixtures("device_class")
def test_nothing_is_mapped_and_it_is_asked_seldom_where_the_api_is_not_served(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Listing(two_nodes.client)
    eventually("the class to be known", lambda: served.after(LIST_SECONDS))
    unserved = Resource("resource.k8s.io/v9", "deviceclasses", namespaced=False)
    monkeypatch.setattr(device_classes, "DEVICE_CLASSES", unserved)
    assert served.after(LIST_SECONDS) == frozenset()
    monkeypatch.setattr(device_classes, "DEVICE_CLASSES", clients.DEVICE_CLASSES)
    assert served.after(LIST_SECONDS) == frozenset()
    assert served.after(RETRY_SECONDS) == {"vendor.com/accelerator", IMPLICIT}


def test_nothing_is_mapped_and_that_is_logged_once_where_classes_may_not_be_read(
    without_rights: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Forbidden):
        mapped_resources(without_rights)
    listing = Listing(without_rights)
    assert listing.after(0) == frozenset()
    assert listing.after(RETRY_SECONDS) == frozenset()
    assert len([record for record in caplog.records if "DeviceClasses cannot be listed" in record.getMessage()]) == 1
