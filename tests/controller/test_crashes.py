"""kill -9 of the real operator around every write of a relaunch, then a new one: recovered, and not doubled.

A proxy before the API server counts the operator's writes and kills the process right before one is forwarded, after
it took effect and before the answer, or right after the answer. Slow: every case starts two operators.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests import audit_log
from tests.clusters import NODE_A, NODE_B, Cluster, pod
from tests.faults.proxy import HangUp, Moment, Proxy, Write
from tests.faults.steps import CLAIM, COMMIT, CREATE, DELETE, MAIN_LINE, step_of
from tests.operator_process import Operator
from tests.unbound_pods import unbound
from tests.waiting import eventually

from topomend.kube.errors import AlreadyExists, NotFound
from topomend.kube.resources import NAMESPACES, PODS, Resource
from topomend.relaunch import manifest
from topomend.wire.relaunch_record import record_name

pytestmark = pytest.mark.cluster

SHORT_PATIENCE = {"reconcile.refused.unbound_pods.PATIENCE_SECONDS": 1.0}
"""A pod counts as unbound after a second without a scheduler's node, not after thirty."""

UNBOUND_STEPS = MAIN_LINE if "FURTHER" in os.environ else (CLAIM, COMMIT, DELETE, CREATE)
UNBOUND_MOMENTS = tuple(Moment) if "FURTHER" in os.environ else (Moment.BEFORE,)
"""The other steps are those of a refused pod. FURTHER in the environment kills at each."""


@pytest.fixture
def proxy(two_nodes: Cluster, tmp_path: Path) -> Iterator[Proxy]:
    # The brake's list is written at any time, and is no step of a relaunch.
    made = Proxy(two_nodes.sandbox.kubeconfig, tmp_path, uncounted=("events", "brakes", "steerings"))
    yield made
    made.close()


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.name.lower())
@pytest.mark.parametrize("write", range(1, len(MAIN_LINE) + 1), ids=lambda number: MAIN_LINE[number - 1])
def test_a_killed_operator_loses_no_pod_and_doubles_none(
    write: int, moment: Moment, fragmented: Cluster, proxy: Proxy, start_operator: Callable[..., Operator]
) -> None:
    name = f"train-{write}-{moment.name.lower()}"
    refused = fragmented.create(pod(name, 3, preferred=NODE_A))
    eventually("the kubelet to refuse", lambda: fragmented.phase(name) == "Failed")
    operator = start_operator(kubeconfig=proxy.kubeconfig)

    def kill(written: Write, now: Moment) -> None:
        if (written.number, now) == (write, moment):
            operator.kill()
            if now is Moment.BEFORE:
                raise HangUp("the client is dead")
        if written.number > write:  # by another connection, while it was being killed
            raise HangUp("the client is dead")

    proxy.fault = kill
    eventually(f"the operator to be killed at {MAIN_LINE[write - 1]}", lambda: operator.process.poll() is not None)
    second = start_operator()
    moved = eventually(f"{name} to run", lambda: fragmented.running(name))
    assert moved["metadata"]["uid"] != refused["metadata"]["uid"]
    assert moved["spec"]["nodeName"] == NODE_B
    eventually("the record to end", lambda: _step(fragmented) == "Launched")
    assert "finalizers" not in moved["metadata"]
    assert len([content for content in fragmented.pods() if content["metadata"]["name"] == name]) == 1
    assert fragmented.sandbox.audit_log
    bound = audit_log.histories(fragmented.sandbox.audit_log)[("default", name)].bound
    assert set(bound) - {refused["metadata"]["uid"]} == {moved["metadata"]["uid"]}
    assert "Traceback" not in operator.text() + second.text()


@pytest.mark.parametrize("moment", UNBOUND_MOMENTS, ids=lambda moment: moment.name.lower())
@pytest.mark.parametrize("step", UNBOUND_STEPS)
def test_a_killed_operator_relaunches_a_pod_that_no_scheduler_binds_once(
    step: str, moment: Moment, fragmented: Cluster, proxy: Proxy, start_operator: Callable[..., Operator]
) -> None:
    pod_before = unbound(fragmented, "train")
    killed = threading.Event()

    def kill(written: Write, now: Moment) -> None:
        if (step_of(written), now) == (step, moment) and not killed.is_set():
            operator.kill()
            killed.set()
        if killed.is_set() and moment is Moment.BEFORE:
            raise HangUp("the client is dead")

    proxy.fault = kill
    operator = start_operator(kubeconfig=proxy.kubeconfig, constants=SHORT_PATIENCE)
    eventually(f"the operator to be killed at {step}", killed.is_set, 60)
    second = start_operator(constants=SHORT_PATIENCE)
    eventually("the record to end", lambda: _step(fragmented) == "Launched", 60)
    moved = eventually("the pod to run", lambda: fragmented.running("train"))
    record = fragmented.records()[0]
    assert record["spec"]["pod"]["uid"] == pod_before.uid
    assert record["status"]["newPod"]["uid"] == moved["metadata"]["uid"] != pod_before.uid
    assert "finalizers" not in moved["metadata"]
    assert fragmented.sandbox.audit_log
    bound = audit_log.histories(fragmented.sandbox.audit_log)[("default", "train")].bound
    assert moved["metadata"]["uid"] in bound
    assert pod_before.uid not in bound
    assert "Traceback" not in operator.text() + second.text()


@pytest.fixture
def namespace(fragmented: Cluster) -> str:
    """A namespace of the test's own."""
    metadata = {"generateName": "ends-"}
    made = fragmented.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name = str(made["metadata"]["name"])
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    with suppress(AlreadyExists):
        fragmented.client.create(Resource("v1", "serviceaccounts"), account, name)
    return name


def _delete_namespace(cluster: Cluster, namespace: str) -> None:
    """Delete it, and wait until its controller has deleted its pods. The rest goes once they are gone."""
    cluster.client.delete(NAMESPACES, namespace, uid=cluster.client.get(NAMESPACES, namespace)["metadata"]["uid"])
    eventually(
        "its pods to be deleted",
        lambda: all(
            content["metadata"].get("deletionTimestamp")
            for content in cluster.client.list(PODS, namespace=namespace).items
        ),
    )


def _is_gone(cluster: Cluster, namespace: str) -> bool:
    try:
        cluster.client.get(NAMESPACES, namespace)
    except NotFound:
        return True
    return False


@pytest.mark.parametrize("step", [COMMIT, CREATE])
def test_a_namespace_that_is_deleted_while_its_unbound_pod_is_relaunched_and_no_operator_runs_ends_with_the_next_one(
    step: str, fragmented: Cluster, namespace: str, proxy: Proxy, start_operator: Callable[..., Operator]
) -> None:
    unbound(fragmented, "train", namespace)
    killed = threading.Event()

    def kill(written: Write, now: Moment) -> None:
        if (step_of(written), now) == (step, Moment.BEFORE):
            operator.kill()
            killed.set()
        if killed.is_set():
            raise HangUp("the client is dead")

    proxy.fault = kill
    operator = start_operator(kubeconfig=proxy.kubeconfig, constants=SHORT_PATIENCE)
    eventually(f"the operator to be killed at {step}", killed.is_set, 60)
    _delete_namespace(fragmented, namespace)
    assert not _is_gone(fragmented, namespace), "the finalizers hold it"
    second = start_operator(constants=SHORT_PATIENCE)
    eventually("the namespace to be gone", lambda: _is_gone(fragmented, namespace), 60)
    assert "Traceback" not in operator.text() + second.text()


def test_a_namespace_ends_whose_claimed_pod_has_lost_its_record(
    fragmented: Cluster, namespace: str, start_operator: Callable[..., Operator]
) -> None:
    """Somebody took the record's finalizer off by hand, and in a namespace that ends no other can be created."""
    pod_before = unbound(fragmented, "train", namespace)
    claim = manifest.claim(fragmented.get("train", namespace), record_name("train", pod_before.uid))
    fragmented.client.merge(PODS, "train", claim, namespace)
    _delete_namespace(fragmented, namespace)
    operator = start_operator()
    eventually("the namespace to be gone", lambda: _is_gone(fragmented, namespace), 60)
    assert "Traceback" not in operator.text()


def _step(cluster: Cluster) -> str:
    records = cluster.records()
    assert len(records) <= 1
    return str(records[0].get("status", {}).get("step")) if records else ""
