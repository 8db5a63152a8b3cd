"""An API server without MutatingAdmissionPolicy, as before Kubernetes 1.36: what is installed, and what works there."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import DEPLOYMENTS, NODE_A, NODE_B, ROOT, SHAPE, Cluster, events_of, pod
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.client import MUTATING_ADMISSION_POLICIES, connect
from topomend.model.node_state import NodeState
from topomend.sandbox import NodeSpec, Sandbox

pytestmark = pytest.mark.cluster

OLDER = "--emulated-version=1.35"
FAILED_PODS = 10


@pytest.fixture
def older() -> Iterator[Cluster]:
    """Everything installed as a user would, on an API server that behaves as one of 1.35."""
    settings = {"topology_manager_policy": "single-numa-node"}
    specs = [NodeSpec.of_shape(name, SHAPE, **settings) for name in (NODE_A, NODE_B)]
    with Sandbox.up(specs, audit=True, api_server_flags=[OLDER]) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        states = {spec.name: NodeState(spec.name, spec.machine, spec.kubelet, spec.devices) for spec in specs}
        yield Cluster(sandbox, client, states)
        client.close()


@pytest.fixture
def operator(older: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """An operator there, which has seen the cluster."""
    _install(older)
    older.fragment()
    started = Operator(older.sandbox.kubeconfig, tmp_path / "operator.log")
    started.wait_until_it_watches()
    yield started
    assert started.terminate() == 0


def _install(cluster: Cluster) -> None:
    """As README says: one file, of which kubectl names eight objects that it leaves out; or the overlay."""
    assert not cluster.client.serves(MUTATING_ADMISSION_POLICIES)
    applied = _apply(cluster, "-f", "deploy/install.yaml")
    assert applied.returncode == 1
    complaints = [line for line in applied.stderr.splitlines() if line != "ensure CRDs are installed first"]
    assert len(complaints) == 8, applied.stderr
    assert all('no matches for kind "MutatingAdmissionPolicy' in line for line in complaints), applied.stderr
    for last in (
        "deployment.apps/topomend-operator",
        "validatingadmissionpolicy.admissionregistration.k8s.io/topomend-",
    ):
        assert last in applied.stdout
    whole = _apply(cluster, "-k", "deploy/overlays/before-1.36")
    assert whole.returncode == 0, whole.stderr
    assert len(whole.stdout.splitlines()) == len(applied.stdout.splitlines())
    # Containers of a sandbox do nothing, and what they ask of the nodes is in the way of the pods of the test.
    for workload in ("deployment/topomend-operator", "daemonset/topomend-agent"):
        namespace = "topomend-system" if "operator" in workload else "topomend-agent"
        assert _kubectl(cluster, "delete", workload, "-n", namespace).returncode == 0
    eventually("their pods to be gone", lambda: not cluster.pods())


def test_before_1_36_pods_are_relaunched_or_deleted_and_a_storm_that_cannot_be_braked_is_reported(
    older: Cluster, operator: Operator
) -> None:
    off = "the storm brake is off: the API server has no MutatingAdmissionPolicy"
    eventually("it to be logged", lambda: off in operator.text())
    made = older.create(pod("train", 3, preferred=NODE_A))
    moved = eventually("train to run again", lambda: _anew(older, made["metadata"]["uid"]))
    assert moved["spec"]["nodeName"] == NODE_B
    _storm(older, operator)
    assert operator.text().count(off) == 1
    assert "Traceback" not in operator.text()


def _storm(cluster: Cluster, operator: Operator) -> None:
    replica = pod("", 3)
    replica["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE_A}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": replica["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    content = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    made = cluster.client.create(DEPLOYMENTS, content, "default")
    eventually(
        "the failed pods to be deleted", lambda: operator.text().count("the failed pod was deleted") > FAILED_PODS, 60
    )
    replicas = eventually("a replica", lambda: _replicas(cluster))
    assert not [replica for replica in replicas if replica["spec"].get("schedulingGates")]
    owner = replicas[0]["metadata"]["ownerReferences"][0]
    events = eventually("the event", lambda: events_of(cluster, {"metadata": owner}, "StormNotBraked"))
    assert events[0]["note"] == (
        f"ReplicaSet {owner['name']}: the API server has no MutatingAdmissionPolicy, so new pods cannot be gated; it "
        "is enabled from Kubernetes 1.36 on"
    )
    cluster.vacate(NODE_A, "filler-1")
    eventually("the replica to run", lambda: _runs(cluster))
    time.sleep(1)
    cluster.client.delete(DEPLOYMENTS, "web", "default", uid=made["metadata"]["uid"])


def _runs(cluster: Cluster) -> bool:
    return any(replica["status"].get("phase") == "Running" for replica in _replicas(cluster))


def _replicas(cluster: Cluster) -> list[dict[str, Any]]:
    return [pod for pod in cluster.pods() if pod["metadata"].get("labels", {}).get("app") == "web"]


def _anew(cluster: Cluster, uid: str) -> dict[str, Any] | None:
    train = cluster.running("train")
    return train if train and train["metadata"]["uid"] != uid else None


def _apply(cluster: Cluster, *what: str) -> subprocess.CompletedProcess[str]:
    return _kubectl(cluster, "apply", "--server-side", *what)


def _kubectl(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*cluster.sandbox.kubectl_prefix(), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
