"""Which extended resources DeviceClasses map, listed from an API server, and what the log says of one without them."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.builders import applied, gated_pod, node_state, refused_pod, snapshot_of
from tests.cli.numa.selftest.served_node import kubeconfig_of
from tests.cli.numa.served_lists import ServedLists
from tests.clock import Clock
from tests.clusters import Cluster
from tests.deploy.api import administrator
from tests.waiting import eventually

from topomend.cache import changes
from topomend.cache.changes import DeviceClassesListed
from topomend.kube import resources
from topomend.kube.client import Client, connect
from topomend.kube.devices import device_classes
from topomend.kube.devices.device_classes import mapped_resources
from topomend.kube.errors import Forbidden
from topomend.kube.resources import DEVICE_CLASSES, Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.nodes.device_classes import LIST_SECONDS, RETRY_SECONDS, UNSERVED, DeviceClasses
from topomend.reconcile.store import Store

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

    def __init__(self, client: Client, *, prefers: bool = False) -> None:
        self.clock, self.store = Clock(0.0), Store()
        self.reported: list[DeviceClassesListed] = []
        self.part = DeviceClasses(client, self.store, self._report, self.clock, prefers=prefers)

    def _report(self, change: DeviceClassesListed) -> None:
        self.reported.append(change)
        self.store.apply(change)

    def after(self, seconds: float) -> frozenset[str]:
        self.clock.now += seconds
        self.part.refresh()
        return self.store.snapshot.by_claim


@pytest.mark.cluster
@pytest.mark.usefixtures("device_class")
def test_the_resources_of_a_class_are_known_soon_after_it_was_created(two_nodes: Cluster) -> None:
    expected = {"vendor.com/accelerator", IMPLICIT}
    eventually("the watch cache to have it", lambda: mapped_resources(two_nodes.client) == expected)
    listing = Listing(two_nodes.client)
    assert listing.after(0) == expected
    assert listing.after(LIST_SECONDS) == expected
    assert listing.reported == [DeviceClassesListed(frozenset(expected))]


@pytest.mark.cluster
@pytest.mark.usefixtures("device_class")
def test_nothing_is_mapped_and_it_is_asked_seldom_where_the_api_is_not_served(
    two_nodes: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Listing(two_nodes.client)
    eventually("the class to be known", lambda: served.after(LIST_SECONDS))
    unserved = Resource("resource.k8s.io/v9", "deviceclasses", namespaced=False)
    monkeypatch.setattr(device_classes, "DEVICE_CLASSES", unserved)
    assert served.after(LIST_SECONDS) == frozenset()
    monkeypatch.setattr(device_classes, "DEVICE_CLASSES", resources.DEVICE_CLASSES)
    assert served.after(LIST_SECONDS) == frozenset()
    assert served.after(RETRY_SECONDS) == {"vendor.com/accelerator", IMPLICIT}


@pytest.mark.cluster
def test_nothing_is_mapped_and_that_is_logged_once_where_classes_may_not_be_read(
    without_rights: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Forbidden):
        mapped_resources(without_rights)
    listing = Listing(without_rights)
    assert listing.after(0) == frozenset()
    assert listing.after(RETRY_SECONDS) == frozenset()
    assert len([record for record in caplog.records if "DeviceClasses cannot be listed" in record.getMessage()]) == 1


@pytest.fixture
def unserved(tmp_path: Path) -> Iterator[tuple[ServedLists, Client]]:
    """An API server without the kinds of DRA, such as that of 1.33, and a client of it."""
    cluster = ServedLists({})
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        yield cluster, connect(str(kubeconfig))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_operator_with_the_option_says_once_that_the_api_is_not_served_until_it_is(
    unserved: tuple[ServedLists, Client], caplog: pytest.LogCaptureFixture
) -> None:
    """The cluster is upgraded while the operator runs, and is set back later."""
    caplog.set_level(logging.INFO)
    cluster, client = unserved
    listing = Listing(client, prefers=True)
    missed = (
        f"--claims (the component claims) has no effect, and no node is preferred for the devices of claims: {UNSERVED}"
    )
    for _ in range(3):
        assert listing.after(RETRY_SECONDS) == frozenset()
        assert not listing.part.is_served
    assert told(caplog) == [missed]
    assert "the API server serves no resource.k8s.io/v1, which Kubernetes has from 1.34 on: upgrade it" in missed
    cluster.items["deviceclasses"] = [{"metadata": {"name": "accelerator"}}]
    for _ in range(2):
        assert listing.after(RETRY_SECONDS) == {IMPLICIT}
        assert listing.part.is_served
    del cluster.items["deviceclasses"]
    for _ in range(2):
        assert listing.after(RETRY_SECONDS) == frozenset()
    assert told(caplog) == [missed, "the API server serves resource.k8s.io/v1 now", missed]


@pytest.mark.parametrize("claiming", [gated_pod, refused_pod])
def test_an_operator_without_the_option_says_it_once_a_pod_claims_devices(
    claiming: Callable[..., WatchedPod], unserved: tuple[ServedLists, Client], caplog: pytest.LogCaptureFixture
) -> None:
    listing = Listing(unserved[1])
    listing.store.snapshot = snapshot_of(node_state(), pods=(gated_pod("plain"), refused_pod("other")))
    listing.after(0)
    assert told(caplog) == []
    pod = claiming("train", scheduler_rules=("resourceClaims",))
    listing.store.snapshot = applied(changes.PodUpdated(pod, 1.0), to=listing.store.snapshot)
    for _ in range(2):
        listing.after(RETRY_SECONDS)
    named = f"{pod.namespace}/train"
    assert told(caplog) == [f"pod {named} claims devices, of which nothing can be known: {UNSERVED}"]
