"""The storm brake recovers from any change of its list and its policy. Every kind of owner: test_owners.py."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.clusters import BINDINGS, SYSTEM, Cluster, pod, policies, storm_replicas, storming_deployment
from tests.deploy.api import administrator
from tests.intercepted import Intercepted
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.gating.definitions import BRAKE
from topomend.kube.errors import AlreadyExists, NotFound, ServerFailed
from topomend.kube.resources import BRAKES, MUTATING_ADMISSION_POLICIES, NAMESPACES, Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.refused import brake as brakes
from topomend.reconcile.refused.brake import Brake
from topomend.wire.group import API_VERSION
from topomend.wire.pods.scheduling import read_watched_pod

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("brake")]

NAME = "topomend-brake"


@pytest.fixture
def operator(fragmented: Cluster, start_operator: Callable[..., Operator]) -> Operator:
    """An operator that watches, and has its list. It writes an owner again after a moment, not after two seconds."""
    started = start_operator(constants={"reconcile.refused.brake.IN_FORCE_SECONDS": 0.1})
    started.wait_until_it_watches()
    eventually("the brake's list", lambda: fragmented.client.get(BRAKES, NAME, SYSTEM))
    return started


def _gated(cluster: Cluster) -> dict[str, Any] | None:
    return next((replica for replica in storm_replicas(cluster) if replica["spec"].get("schedulingGates")), None)


def _owner(replica: dict[str, Any]) -> str:
    return str(replica["metadata"]["ownerReferences"][0]["uid"])


def test_an_owner_that_somebody_took_off_the_list_is_on_it_again_after_its_next_refused_pod(
    fragmented: Cluster, operator: Operator
) -> None:
    with storming_deployment(fragmented):
        gated = eventually("a replica to be gated", lambda: _gated(fragmented))
        fragmented.client.merge(BRAKES, NAME, {"owners": {_owner(gated): None}}, SYSTEM)
        eventually("the API server to know", lambda: not _is_gated_at_birth(fragmented, _owner(gated)))
        fragmented.remove(gated)
        result = eventually("a replica to be gated again", lambda: _another(fragmented, gated))
        assert _owner(result) in fragmented.client.get(BRAKES, NAME, SYSTEM)["owners"]
    assert "Traceback" not in operator.text()


def _another(cluster: Cluster, one: dict[str, Any]) -> dict[str, Any] | None:
    gated = _gated(cluster)
    return gated if gated and gated["metadata"]["uid"] != one["metadata"]["uid"] else None


def test_a_controller_in_a_namespace_that_opted_out_is_not_braked(fragmented: Cluster, operator: Operator) -> None:
    patch = {"metadata": {"annotations": {"topomend.io/relaunch": "false"}}}
    fragmented.client.merge(NAMESPACES, "default", patch)
    try:
        with storming_deployment(fragmented):
            eventually("a storm", lambda: len(storm_replicas(fragmented)) > 5)
            assert not _gated(fragmented)
            owner = _owner(storm_replicas(fragmented)[0])
        assert owner not in (fragmented.client.get(BRAKES, NAME, SYSTEM).get("owners") or {})
    finally:
        fragmented.client.merge(NAMESPACES, "default", {"metadata": {"annotations": {"topomend.io/relaunch": None}}})
    assert "Traceback" not in operator.text()


def test_a_policy_that_was_deleted_and_installed_again_knows_the_list(two_nodes: Cluster) -> None:
    """With a list in a ConfigMap the API server never saw it change again."""
    before, after = f"before-{time.monotonic_ns()}", f"after-{time.monotonic_ns()}"
    head = {"apiVersion": API_VERSION, "kind": "Brake", "metadata": {"name": NAME}}
    api = administrator(two_nodes.sandbox.kubeconfig)
    assert api.apply(f"{BRAKES.path(SYSTEM, NAME)}", head | {"owners": {before: "default/ReplicaSet/web"}}).allowed
    eventually("a pod of the owner to be gated", lambda: _is_gated_at_birth(two_nodes, before))
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(BRAKE), strict=True):
        policy = two_nodes.client.get(resource, document["metadata"]["name"])
        two_nodes.client.delete(resource, document["metadata"]["name"], uid=policy["metadata"]["uid"])
    eventually("the policy to be out of force", lambda: not _is_gated_at_birth(two_nodes, before))
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(BRAKE), strict=True):
        two_nodes.client.create(resource, document)
    assert api.apply(f"{BRAKES.path(SYSTEM, NAME)}", head | {"owners": {after: "default/ReplicaSet/web"}}).allowed
    eventually("a pod of the owner to be gated", lambda: _is_gated_at_birth(two_nodes, after))
    assert not _is_gated_at_birth(two_nodes, "another")


def _is_gated_at_birth(cluster: Cluster, owner: str) -> bool:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": owner, "controller": True}
    content = pod("tried", 1, ownerReferences=[reference])
    answer = administrator(cluster.sandbox.kubeconfig).apply(
        "/api/v1/namespaces/default/pods/tried", content, dry_run=True
    )
    assert answer.allowed, answer.message
    return bool(answer.content["spec"].get("schedulingGates"))


REPLICA_SETS = Resource("apps/v1", "replicasets")


@pytest.fixture
def controllers(two_nodes: Cluster) -> Iterator[list[WatchedPod]]:
    """A refused pod of each of two ReplicaSets, and an empty list."""
    with suppress(AlreadyExists):
        two_nodes.client.create(
            BRAKES, {"apiVersion": API_VERSION, "kind": "Brake", "metadata": {"name": NAME}}, SYSTEM
        )
    two_nodes.client.merge(BRAKES, NAME, {"owners": None}, SYSTEM)
    made = [_replica_set(two_nodes, name) for name in ("first", "second")]
    yield [_refused_pod_of(controller) for controller in made]
    for controller in made:
        two_nodes.client.delete(
            REPLICA_SETS, controller["metadata"]["name"], "default", uid=controller["metadata"]["uid"]
        )
    two_nodes.client.merge(BRAKES, NAME, {"owners": None}, SYSTEM)


def _replica_set(cluster: Cluster, name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod("", 1)["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    content = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
    return cluster.client.create(REPLICA_SETS, content, "default")


def _refused_pod_of(controller: dict[str, Any]) -> WatchedPod:
    name, uid = controller["metadata"]["name"], controller["metadata"]["uid"]
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": True}
    content = pod("p", 1, ownerReferences=[reference])
    content["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": "default"}
    return read_watched_pod(content)


def _uid(pod: WatchedPod) -> str:
    assert pod.owner
    return pod.owner.uid


def _listed(cluster: Cluster) -> set[str]:
    return set(cluster.client.get(BRAKES, NAME, SYSTEM).get("owners") or {})


def test_a_write_that_takes_long_delays_neither_other_controllers_nor_other_questions(
    two_nodes: Cluster, controllers: list[WatchedPod]
) -> None:
    slow, other = controllers
    asked, answered = threading.Event(), threading.Event()

    def hang_once(method: str, _: str) -> None:
        if method == "PATCH" and not asked.is_set():
            asked.set()
            answered.wait()

    brake = Brake(Intercepted(two_nodes.client, hang_once), SYSTEM, lambda: "")
    hanging = threading.Thread(target=brake.engage, args=(slow,), daemon=True)
    hanging.start()
    try:
        eventually("the write to be under way", asked.is_set)
        beside = threading.Thread(target=brake.engage, args=(other,), daemon=True)
        beside.start()
        eventually("the other controller to be listed", lambda: _listed(two_nodes) == {_uid(other)})
        eventually("its listing to be known", lambda: brake.lists(other))
        brake.release(())
    finally:
        answered.set()
    eventually("both to be listed", lambda: _listed(two_nodes) == {_uid(slow), _uid(other)})


def test_it_is_known_how_many_are_braked_and_since_when_the_first(
    two_nodes: Cluster, controllers: list[WatchedPod], monkeypatch: pytest.MonkeyPatch
) -> None:
    brake = Brake(two_nodes.client, SYSTEM, lambda: "")
    assert (brake.count(), brake.oldest_seconds()) == (0, 0.0)
    began = time.monotonic()
    assert brake.because(controllers[0]) == ""
    assert brake.engage(controllers[0]) == ""
    because = brake.because(controllers[0])
    assert because.startswith("gated because new pods of ReplicaSet ")
    assert because.endswith(" are braked since p was refused")
    monkeypatch.setattr(
        brakes, "IN_FORCE_SECONDS", -1.0
    )  # as if somebody emptied the list, so that it is written again
    again = _refused_pod_of({"metadata": {"name": "first", "uid": _uid(controllers[0])}})
    before = brake.oldest_seconds()
    assert brake.engage(again) == ""
    assert before <= brake.oldest_seconds() <= time.monotonic() - began
    assert brake.engage(controllers[1]) == ""
    assert brake.count() == 2
    monkeypatch.setattr(brakes, "QUIET_SECONDS", -60.0)
    brake.release(())
    assert (brake.count(), brake.oldest_seconds()) == (0, 0.0)


def test_a_list_that_vanishes_whenever_it_is_written_is_not_written_without_end(
    two_nodes: Cluster, controllers: list[WatchedPod]
) -> None:
    def refuse(method: str, _: str) -> None:
        if method == "PATCH":
            raise NotFound(404, "NotFound", "no such list")
        if method == "POST":
            raise AlreadyExists(409, "AlreadyExists", "there is one")

    brake = Brake(Intercepted(two_nodes.client, refuse), SYSTEM, lambda: "")
    assert "cannot be written: 404 NotFound" in brake.engage(controllers[0])
    assert not brake.lists(controllers[0])


def test_a_controller_whose_pod_is_refused_while_it_is_taken_off_the_list_stays_on_it(
    two_nodes: Cluster, controllers: list[WatchedPod], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Intercepted(two_nodes.client)
    brake = Brake(client, SYSTEM, lambda: "")
    assert brake.engage(controllers[0]) == ""
    again = _refused_pod_of({"metadata": {"name": "first", "uid": _uid(controllers[0])}})

    def refuse_meanwhile(method: str, _: str) -> None:
        if method == "PATCH":
            client.intercept = lambda _, __: None
            assert brake.engage(again) == ""

    client.intercept = refuse_meanwhile
    monkeypatch.setattr(brakes, "QUIET_SECONDS", -60.0)
    brake.release(())
    assert _listed(two_nodes) == {_uid(again)}
    assert brake.lists(again)
    brake.release(())
    assert _listed(two_nodes) == set()
    assert not brake.lists(again)


def test_a_controller_that_cannot_be_taken_off_the_list_is_taken_off_later(
    two_nodes: Cluster, controllers: list[WatchedPod], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Intercepted(two_nodes.client)
    brake = Brake(client, SYSTEM, lambda: "")
    assert brake.engage(controllers[0]) == ""
    monkeypatch.setattr(brakes, "QUIET_SECONDS", -60.0)

    def fail(method: str, _: str) -> None:
        if method == "PATCH":
            raise ServerFailed(500, "InternalError", "no")

    client.intercept = fail
    with pytest.raises(ServerFailed):
        brake.release(())
    assert brake.lists(controllers[0])
    client.intercept = lambda _, __: None
    brake.release(())
    assert _listed(two_nodes) == set()
