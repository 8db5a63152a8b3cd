"""kopf keeps watching the operator's own objects, whatever goes wrong between it and a real API server."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import CRDS, Cluster
from tests.faults.proxy import Answer, Proxy, Request, failure, status_of
from tests.waiting import eventually

from topomend.controller.own_objects import PAUSES, OwnObjects
from topomend.kube.connection.access import find_access
from topomend.kube.errors import NotFound
from topomend.kube.resources import CLAIMS, DEPLOYMENTS, EVENTS, LEASES, PODS, SECRETS, Resource

pytestmark = pytest.mark.cluster

NAME, NAMESPACE = "watched", "default"

REFUSALS = 5
"""How often a request is refused before one is answered again: each time kopf waits longer."""


class Scene:
    """A Lease, and kopf that watches it through a proxy. ``told`` are its holders as they were told, None for none."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.cluster, self.proxy, self.told = cluster, proxy, list[str | None]()
        self.own = OwnObjects(find_access(str(proxy.kubeconfig)), NAMESPACE, ((LEASES, NAME),), self._tell)

    def _tell(self, resource: Resource, content: dict[str, Any], is_deleted: bool) -> None:
        assert resource is LEASES
        self.told.append(None if is_deleted else content["spec"]["holderIdentity"])

    def start(self) -> None:
        """Start kopf, and wait until it watches."""
        self.own.start()
        eventually("kopf to watch", lambda: self.proxy.streams("leases"))

    def hold(self, holder: str, name: str = NAME) -> None:
        """Have the Lease name this holder."""
        content = {"apiVersion": LEASES.api_version, "kind": "Lease", "spec": {"holderIdentity": holder}}
        self.cluster.client.apply(LEASES, name, content | {"metadata": {"name": name}}, NAMESPACE)

    def delete(self) -> None:
        """Delete the Lease."""
        uid = self.cluster.client.get(LEASES, NAME, NAMESPACE)["metadata"]["uid"]
        self.cluster.client.delete(LEASES, NAME, NAMESPACE, uid=uid)

    def is_told(self, holder: str | None, seconds: float = 15.0) -> None:
        """Wait until this was told last."""
        eventually(f"{holder} to be told", lambda: self.told[-1:] == [holder], seconds)


@pytest.fixture
def scene(two_nodes: Cluster, tmp_path: Path) -> Iterator[Scene]:
    proxy = Proxy(two_nodes.sandbox.kubeconfig, tmp_path)
    made = Scene(two_nodes, proxy)
    yield made
    made.own.stop()
    proxy.close()
    with suppress(NotFound):
        made.delete()


def test_it_tells_what_is_there_and_each_change_and_nothing_of_other_objects(scene: Scene) -> None:
    scene.hold("first")
    scene.hold("nobody", "another")
    scene.start()
    scene.is_told("first")
    scene.hold("second")
    scene.is_told("second")
    scene.delete()
    scene.is_told(None)
    scene.hold("third")
    scene.is_told("third")
    assert set(scene.told) == {"first", "second", None, "third"}


GADGETS = Resource("own-objects.example.com/v1", "gadgets")


def test_a_kind_that_comes_later_is_watched_once_it_is_there(
    two_nodes: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    told = list[str]()
    access = two_nodes.client.access
    own = OwnObjects(access, NAMESPACE, ((GADGETS, NAME),), lambda _, content, __: told.append(content["kind"]))
    own.start()
    made = None
    try:
        eventually("its lack to be told", lambda: "serves no gadgets of own-objects.example.com/v1" in caplog.text)
        made = two_nodes.client.create(CRDS, _definition())
        content = {"apiVersion": GADGETS.api_version, "kind": "Gadget", "metadata": {"name": NAME}}
        eventually("it to be served", lambda: two_nodes.client.create(GADGETS, content, NAMESPACE))
        eventually("it to be told", lambda: told[-1:] == ["Gadget"])
    finally:
        own.stop()
        if made:
            two_nodes.client.delete(CRDS, made["metadata"]["name"], uid=made["metadata"]["uid"])


def _definition() -> dict[str, Any]:
    group, version = GADGETS.api_version.split("/")
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    return {
        "apiVersion": CRDS.api_version,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def test_it_changes_nothing(scene: Scene) -> None:
    scene.hold("first")
    scene.start()
    scene.is_told("first")
    metadata = scene.cluster.client.get(LEASES, NAME, NAMESPACE)["metadata"]
    assert not metadata.keys() & {"annotations", "finalizers"}
    assert {entry["manager"] for entry in metadata["managedFields"]} == {"topomend"}
    assert {request.method for request in scene.proxy.asked} == {"GET"}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda proxy: proxy.cut("leases"), id="the connection is cut"),
        pytest.param(lambda proxy: proxy.end("leases"), id="the server ends it"),
        pytest.param(lambda proxy: proxy.end("leases", _error(410)), id="the version is too old"),
        pytest.param(lambda proxy: proxy.end("leases", _error(500)), id="an error that kopf does not expect"),
        pytest.param(lambda proxy: proxy.end("leases", b'{"type": "MODI'), id="half a line"),
    ],
)
def test_however_its_watch_ends_it_goes_on(scene: Scene, fault: Callable[[Proxy], int]) -> None:
    scene.hold("first")
    scene.start()
    scene.is_told("first")
    assert fault(scene.proxy) == 1
    scene.hold("second")
    scene.is_told("second")
    scene.hold("third")
    scene.is_told("third")


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_whatever_it_is_answered_for_a_while_it_goes_on_afterwards(
    scene: Scene, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """Those of 404 are of a kind that is not installed at the moment."""
    scene.hold("first")
    scene.start()
    scene.is_told("first")
    refused_at: list[float] = []

    def refuse(_: Request) -> Answer | None:
        if len(refused_at) == REFUSALS:
            return None
        refused_at.append(time.monotonic())
        return failure(status, "Fault")

    scene.proxy.rules.append(refuse)
    scene.proxy.cut("leases")
    scene.hold("second")
    scene.is_told("second", 60)
    if status == 401:
        assert "does not accept the account: token of user" in caplog.text
    assert len(refused_at) == REFUSALS
    assert refused_at[-1] - refused_at[0] > PAUSES.first, "it does not ask without pause"


CONFIG_MAPS = Resource("v1", "configmaps")
FAILING = (LEASES, PODS, SECRETS, CLAIMS, EVENTS, DEPLOYMENTS)
"""Each has a watch, and each of those hung in one of two runs."""


def test_one_kind_that_is_gone_while_others_fail_stops_none(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """kopf ends where a kind is gone, and a watch that it tries again at that moment may ignore that it is to end."""
    told = list[str]()
    named = [(resource, NAME) for resource in (CONFIG_MAPS, *FAILING)]
    scene.own = OwnObjects(
        find_access(str(scene.proxy.kubeconfig)), NAMESPACE, named, lambda resource, *_: told.append(resource.plural)
    )
    failing = {resource.plural for resource in FAILING}
    failed = set[str]()

    def refuse(request: Request) -> Answer | None:
        if request.plural == CONFIG_MAPS.plural:
            return failure(404, "Fault")
        if request.plural not in failing:
            return None
        failed.add(request.plural)
        return failure(500, "Fault")

    scene.start()
    eventually("kopf to watch", lambda: all(scene.proxy.streams(resource.plural) for resource, _ in named))
    scene.proxy.rules.append(refuse)
    for plural in failing:
        scene.proxy.cut(plural)
    eventually("each to be tried again", lambda: failed == failing)
    scene.proxy.cut(CONFIG_MAPS.plural)
    eventually("kopf to end", lambda: "kopf ended" in caplog.text)
    scene.proxy.rules.clear()
    scene.hold("first")
    eventually("it to be told", lambda: told == ["leases"])


def test_it_ends_even_while_nothing_is_answered(scene: Scene) -> None:
    scene.start()
    assert scene.proxy.stall("leases") == 1
    scene.own.stop()
    eventually("kopf to end", lambda: not scene.own._thread.is_alive())


def _error(code: int) -> bytes:
    return json.dumps({"type": "ERROR", "object": status_of(code, "Fault")}).encode() + b"\n"
