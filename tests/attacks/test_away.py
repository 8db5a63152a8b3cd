"""The operator is away: for how long new pods are still gated, and what becomes of those that are."""

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.clusters import BINDINGS, SYSTEM, Cluster, brake_on, pod, policies
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.gating.definitions import STEER
from topomend.kube.errors import AlreadyExists, NotFound
from topomend.kube.resources import BRAKES, MUTATING_ADMISSION_POLICIES, NAMESPACES, PODS, STEERINGS
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import BRAKE, BRAKE_NAME, FIT_GATE, STEERING, STEERING_NAME

pytestmark = pytest.mark.cluster

NAMESPACE = "steered-away"
VALID = 10.0
SHORT = {"gating.parameters.VALID_SECONDS": VALID, "gating.parameters.RENEW_SECONDS": 2.0}
"""The policies gate pods for VALID seconds after the last renewal, not for ten minutes."""


@pytest.fixture(scope="module")
def cluster(two_nodes: Cluster) -> Iterator[Cluster]:
    """Both gating policies as they are deployed, and a steered namespace."""
    metadata = {"name": NAMESPACE, "labels": {"topomend.io/steer": "enabled"}}
    with suppress(AlreadyExists):
        two_nodes.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    made = []
    with brake_on(two_nodes):
        for resource, document in zip((MUTATING_ADMISSION_POLICIES, BINDINGS), policies(STEER), strict=True):
            with suppress(AlreadyExists):
                made.append((resource, two_nodes.client.create(resource, document)))
        yield two_nodes
        two_nodes.clear()
        forget(two_nodes)
    for resource, content in made:
        two_nodes.client.delete(resource, content["metadata"]["name"], uid=content["metadata"]["uid"])


def forget(cluster: Cluster) -> None:
    """Remove both parameter objects."""
    for resource, name in ((STEERINGS, STEERING_NAME), (BRAKES, BRAKE_NAME)):
        with suppress(NotFound):
            uid = cluster.client.get(resource, name, SYSTEM)["metadata"]["uid"]
            cluster.client.delete(resource, name, SYSTEM, uid=uid)


def until(seconds: float) -> dict[str, str]:
    return {"validUntil": timestamp(datetime.now(UTC) + timedelta(seconds=seconds))}


def is_gated_at_birth(cluster: Cluster, **metadata: Any) -> bool:
    namespace = "default" if metadata else NAMESPACE
    tried = cluster.client.create(PODS, pod("tried", 3, **metadata), namespace, dry_run=True)
    return {"name": FIT_GATE} in tried["spec"].get("schedulingGates", [])


def valid_until(cluster: Cluster) -> str:
    """A timestamp until which new pods are gated: those of RFC 3339 sort by time."""
    return str(cluster.client.get(STEERINGS, STEERING_NAME, SYSTEM)["validUntil"])


def hangs_with_a_gated_pod(cluster: Cluster, operator: Operator) -> bool:
    """Have the operator hang and create a pod; on a machine that stood still meanwhile the renewal may have lapsed."""
    operator.process.send_signal(signal.SIGSTOP)
    made = cluster.create(pod("waits", 3), NAMESPACE)
    if made["spec"].get("schedulingGates"):
        return True
    operator.process.send_signal(signal.SIGCONT)
    cluster.remove(made)
    return False


HOUR = 3600.0


@pytest.mark.parametrize("has_limit", [True, False])
def test_new_pods_of_a_steered_namespace_are_gated_until_the_renewal_lapses(cluster: Cluster, has_limit: bool) -> None:
    forget(cluster)
    head = {"apiVersion": STEERINGS.api_version, "kind": STEERING, "metadata": {"name": STEERING_NAME}}
    cluster.client.create(STEERINGS, head | (until(HOUR) if has_limit else {}), SYSTEM)
    eventually("the policy to gate", lambda: is_gated_at_birth(cluster))
    cluster.client.merge(STEERINGS, STEERING_NAME, until(-60), SYSTEM)
    eventually("no pod to be gated", lambda: not is_gated_at_birth(cluster))


def test_new_pods_of_a_braked_controller_are_gated_until_the_renewal_lapses(cluster: Cluster) -> None:
    forget(cluster)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "braked-uid", "controller": True}
    head = {"apiVersion": BRAKES.api_version, "kind": BRAKE, "metadata": {"name": BRAKE_NAME}}
    cluster.client.create(BRAKES, head | until(HOUR) | {"owners": {"braked-uid": "default/ReplicaSet/web"}}, SYSTEM)
    eventually("the policy to gate", lambda: is_gated_at_birth(cluster, ownerReferences=[owner]))
    cluster.client.merge(BRAKES, BRAKE_NAME, until(-60), SYSTEM)
    eventually("no pod to be gated", lambda: not is_gated_at_birth(cluster, ownerReferences=[owner]))


@pytest.mark.usefixtures("agents")
def test_an_operator_that_hangs_gates_no_new_pods_in_the_end_and_lets_the_gated_ones_go_when_it_is_back(
    cluster: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """Its pod still exists, so the garbage collector leaves the parameter objects."""
    forget(cluster)
    operator = start_operator("--leader-elect", "--identity=hangs", constants=SHORT)
    operator.wait_until_it_watches()
    eventually("steering to be on", lambda: is_gated_at_birth(cluster))
    first = valid_until(cluster)
    eventually("steering to be renewed", lambda: valid_until(cluster) > first)
    try:
        eventually("a pod to be gated while the operator hangs", lambda: hangs_with_a_gated_pod(cluster, operator))
        eventually("steering to lapse", lambda: not is_gated_at_birth(cluster))
        ungated = cluster.create(pod("passes", 1), NAMESPACE)
        assert not ungated["spec"].get("schedulingGates")
        assert cluster.get("waits", NAMESPACE)["spec"]["schedulingGates"]
    finally:
        operator.process.send_signal(signal.SIGCONT)
    eventually("the gated pod to run", lambda: cluster.get("waits", NAMESPACE)["status"].get("phase") == "Running")
    eventually("steering to be on again", lambda: is_gated_at_birth(cluster))
