"""The storm brake recovers from any change of its list and its policy. Every kind of owner: test_owners.py."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters import BINDINGS, SYSTEM, Cluster, pod, policies, storm_replicas, storming_deployment
from tests.deploy.api import administrator
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.gating.definitions import BRAKE
from topomend.kube.client import BRAKES, MUTATING_ADMISSION_POLICIES, NAMESPACES
from topomend.wire.group import API_VERSION

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("brake")]

NAME = "topomend-brake"


@pytest.fixture
def operator(fragmented: Cluster, start_operator: Callable[..., Operator]) -> Operator:
    """An operator that watches, and has its list."""
    started = start_operator()
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
        time.sleep(2)
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
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(BRAKE), strict=True):
        policy = two_nodes.client.get(resource, document["metadata"]["name"])
        two_nodes.client.delete(resource, document["metadata"]["name"], uid=policy["metadata"]["uid"])
    time.sleep(3)
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(BRAKE), strict=True):
        two_nodes.client.create(resource, document)
    uid = f"after-{time.monotonic_ns()}"
    head = {"apiVersion": API_VERSION, "kind": "Brake", "metadata": {"name": NAME}}
    api = administrator(two_nodes.sandbox.kubeconfig)
    assert api.apply(f"{BRAKES.path(SYSTEM, NAME)}", head | {"owners": {uid: "default/ReplicaSet/web"}}).allowed
    eventually("a pod of the owner to be gated", lambda: _is_gated_at_birth(two_nodes, uid))
    assert not _is_gated_at_birth(two_nodes, "another")


def _is_gated_at_birth(cluster: Cluster, owner: str) -> bool:
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": owner, "controller": True}
    content = pod("tried", 1, ownerReferences=[reference])
    answer = administrator(cluster.sandbox.kubeconfig).apply(
        "/api/v1/namespaces/default/pods/tried", content, dry_run=True
    )
    assert answer.allowed, answer.message
    return bool(answer.content["spec"].get("schedulingGates"))
