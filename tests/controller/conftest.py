"""A steered namespace on the shared sandbox, and an operator that watches it."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.clusters import BINDINGS, POLICY_OF_NEW_KIND_SECONDS, SYSTEM, Cluster, pod, policies
from tests.deploy.api import administrator
from tests.operator_process import Operator, metrics_flag
from tests.waiting import eventually

from topomend.gating.definitions import STEER
from topomend.kube.errors import AlreadyExists
from topomend.kube.resources import MUTATING_ADMISSION_POLICIES, NAMESPACES, STEERINGS
from topomend.wire.group import STEERING, STEERING_NAME

NAMESPACE = "steered"


@pytest.fixture
def steered(two_nodes: Cluster) -> Iterator[None]:
    """The policy as it is deployed, in force, and a namespace with its label."""
    metadata = {"name": NAMESPACE, "labels": {"topomend.io/steer": "enabled"}}
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    steering = {"apiVersion": STEERINGS.api_version, "kind": STEERING, "metadata": {"name": STEERING_NAME}}
    with suppress(AlreadyExists):
        two_nodes.client.create(STEERINGS, steering, SYSTEM)
    made = []
    for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(STEER), strict=True):
        with suppress(AlreadyExists):  # another test has installed everything
            made.append((resource, two_nodes.client.create(resource, document)))
    eventually("the policy to be in force", lambda: _is_gated_at_birth(two_nodes), POLICY_OF_NEW_KIND_SECONDS)
    yield
    two_nodes.clear()
    for resource, content in made:
        two_nodes.client.delete(resource, content["metadata"]["name"], uid=content["metadata"]["uid"])


@pytest.fixture
def operator(start_operator: Callable[..., Operator]) -> Operator:
    """An operator that has seen the cluster, and serves its metrics."""
    started = start_operator(metrics_flag())
    started.wait_until_it_watches()
    return started


def _is_gated_at_birth(cluster: Cluster) -> bool:
    api = administrator(cluster.sandbox.kubeconfig)
    answer = api.apply(f"/api/v1/namespaces/{NAMESPACE}/pods/tried", pod("tried", 3), dry_run=True)
    return bool(answer.allowed and answer.content["spec"].get("schedulingGates"))
