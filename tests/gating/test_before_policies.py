"""An API server without MutatingAdmissionPolicy, as before Kubernetes 1.36: what is installed, and what works there."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import (
    COLLECTOR_SECONDS,
    NODE_A,
    NODE_B,
    ROOT,
    SHAPE,
    STORM,
    Cluster,
    events_of,
    pod,
    storm_replicas,
    storming_deployment,
)
from tests.operator_process import Operator
from tests.waiting import consistently, eventually

from topomend.gating.installer import NO_WEBHOOK
from topomend.kube.client import connect
from topomend.kube.resources import DEPLOYMENTS, MUTATING_ADMISSION_POLICIES, NAMESPACES, Resource
from topomend.model.nodes.node_state import NodeState
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.processes.host import free_ports
from topomend.wire.group import CREATOR_ANNOTATION, FIT_GATE, STEER_LABEL

pytestmark = pytest.mark.cluster

OLDER = "1.35"
FAILED_PODS = 10
WATCHED_SECONDS = 10.0
PATIENT = {"gating.definitions.TIMEOUT_SECONDS": 30}
"""So many seconds an API server waits for the webhook, which may stand still with the machine: it gates nonetheless."""


@pytest.fixture
def older() -> Iterator[Cluster]:
    """Everything installed as a user would, on an API server that behaves as one of 1.35."""
    settings = {"topology_manager_policy": "single-numa-node"}
    specs = [NodeSpec.of_shape(name, SHAPE, **settings) for name in (NODE_A, NODE_B)]
    with Sandbox.up(specs, audit=True, emulated_version=OLDER) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        states = {spec.name: NodeState(spec.name, spec.machine, spec.kubelet, spec.devices) for spec in specs}
        yield Cluster(sandbox, client, states)
        client.close()


@pytest.fixture
def start(older: Cluster, tmp_path: Path) -> Iterator[Callable[..., Operator]]:
    """Start an operator there with these flags, and wait until it has seen the cluster."""
    _install(older)
    older.fragment()
    running: list[Operator] = []

    def started(*flags: str) -> Operator:
        running.append(Operator(older.sandbox.kubeconfig, tmp_path / "operator.log", *flags, constants=PATIENT))
        running[-1].wait_until_it_watches()
        return running[-1]

    yield started
    for operator in running:
        assert operator.terminate() == 0
        assert "Traceback" not in operator.text()


def _install(cluster: Cluster) -> None:
    """As README says, either way, without an error."""
    assert not cluster.client.serves(MUTATING_ADMISSION_POLICIES)
    for source in (("-k", "deploy"), ("-f", "deploy/install.yaml")):
        applied = _kubectl(cluster, "apply", "--server-side", *source)
        # kubectl has a default for the order itself, and says at each -k that a kustomization's own order counts.
        said = [line for line in applied.stderr.splitlines() if "Sorting order is set both" not in line]
        assert (applied.returncode, said) == (0, [])
    # Containers of a sandbox do nothing, and what they ask of the nodes is in the way of the pods of the test.
    for workload in ("deployment/topomend-operator", "daemonset/topomend-agent"):
        namespace = "topomend-system" if "operator" in workload else "topomend-agent"
        assert _kubectl(cluster, "delete", workload, "-n", namespace).returncode == 0
    eventually("their pods to be gone", lambda: not cluster.pods(), COLLECTOR_SECONDS)


@pytest.mark.night  # make e2e has an older release as installed
def test_before_1_36_a_webhook_gates_the_pods_of_a_storm_and_of_steered_namespaces(
    older: Cluster, start: Callable[..., Operator]
) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    operator = start(f"--webhook-address={address}", f"--webhook-url=https://{address}")
    eventually("the webhook", lambda: "applied for new pods, as the webhook" in operator.text())
    made = older.create(pod("train", 3, preferred=NODE_A))
    assert made["metadata"]["annotations"][CREATOR_ANNOTATION].startswith("topomend-sandbox-admin")
    moved = eventually("train to run again", lambda: _anew(older, made["metadata"]["uid"]))
    assert moved["spec"]["nodeName"] == NODE_B
    with storming_deployment(older):
        gated = eventually("a gated replica, and no refused one", lambda: _only_gated(older))
        print(f"refused before: {operator.text().count('the failed pod was deleted')}")
        consistently("the storm to be over", lambda: _only_gated(older) == gated, WATCHED_SECONDS)
        older.vacate(NODE_A, "filler-1")
        eventually("the replica to run", lambda: _runs(older))
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    namespace["metadata"] = {"name": "steered", "labels": {STEER_LABEL: "enabled"}}  # type: ignore[assignment]
    older.client.create(NAMESPACES, namespace)
    eventually("its account", lambda: older.client.get(Resource("v1", "serviceaccounts"), "default", "steered"))
    steered = older.create(pod("steered", 100), "steered")
    assert [gate["name"] for gate in steered["spec"]["schedulingGates"]] == [FIT_GATE]


@pytest.mark.night  # half a minute for a warning
def test_before_1_36_a_storm_that_cannot_be_braked_is_reported(older: Cluster, start: Callable[..., Operator]) -> None:
    operator = start()
    off = f"the storm brake is off: {NO_WEBHOOK}"
    with storming_deployment(older):
        eventually(
            "the failed pods to be deleted",
            lambda: operator.text().count("the failed pod was deleted") > FAILED_PODS,
            60,
        )
        replicas = eventually("a replica", lambda: storm_replicas(older))
        assert not any(map(_is_gated, replicas))
        owner = replicas[0]["metadata"]["ownerReferences"][0]
        described = older.client.get(DEPLOYMENTS, STORM, "default")  # people describe it
        events = eventually("the event", lambda: events_of(older, described, "StormNotBraked"))
        assert events[0]["note"] == f"ReplicaSet {owner['name']}: {NO_WEBHOOK}"
        older.vacate(NODE_A, "filler-1")
        eventually("the replica to run", lambda: _runs(older))
    assert operator.text().count(off) == 1


def _only_gated(cluster: Cluster) -> list[str]:
    """The uids of all replicas, if there is any and each is gated."""
    replicas = storm_replicas(cluster)
    return [replica["metadata"]["uid"] for replica in replicas] if all(map(_is_gated, replicas)) else []


def _is_gated(replica: dict[str, Any]) -> bool:
    return bool(replica["spec"].get("schedulingGates"))


def _runs(cluster: Cluster) -> bool:
    return any(replica["status"].get("phase") == "Running" for replica in storm_replicas(cluster))


def _anew(cluster: Cluster, uid: str) -> dict[str, Any] | None:
    train = cluster.running("train")
    return train if train and train["metadata"]["uid"] != uid else None


def _kubectl(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*cluster.sandbox.kubectl_prefix(), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
