"""Pods that real kubelets refuse for other reasons than TopologyAffinityError: explained, and running elsewhere."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import Cluster, agents_on, cluster_of, events_of, pod
from tests.operator_process import Operator
from tests.waiting import eventually

import topomend
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.model.bitmask import parse_id_list
from topomend.sandbox import NodeSpec

pytestmark = pytest.mark.cluster

WHOLE_CORES, THREADS, UNALIGNED = "whole-cores", "threads", "unaligned"
SHAPE = "numa:2 cores:4 threads:2 memory:4Gi"
NIC = "vendor.com/nic"

SPECS = (
    NodeSpec.of_shape(
        WHOLE_CORES,
        SHAPE,
        topology_manager_policy="single-numa-node",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_cpus=parse_id_list("0,8"),
    ),
    NodeSpec.of_shape(THREADS, f"{SHAPE} device:{NIC}@0=1,1=1", topology_manager_policy="single-numa-node"),
    NodeSpec.of_shape(UNALIGNED, SHAPE),
)
"""Only ``threads`` gives single threads, and only its device plugin stays."""


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Cluster]:
    """Three nodes, each with its agent."""
    with cluster_of(SPECS) as cluster, agents_on(cluster):
        eventually("all agents to publish", lambda: all(_is_ready(cluster, spec.name) for spec in SPECS))
        yield cluster


@pytest.fixture
def operator(three_nodes: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """An operator that watches."""
    operator = Operator(three_nodes.sandbox.kubeconfig, tmp_path / "operator.log")
    try:
        operator.wait_until_it_watches()
        yield operator
    finally:
        operator.terminate()
        print(operator.text())
        three_nodes.remove_all()


def test_a_pod_refused_with_smt_alignment_error_is_explained_and_runs_where_threads_are_given(
    three_nodes: Cluster, operator: Operator
) -> None:
    refused = three_nodes.create(pod("odd", 3, node=WHOLE_CORES))
    replacement = eventually("odd to run again", lambda: _replacement(three_nodes, refused))
    assert replacement["spec"]["nodeName"] in (THREADS, UNALIGNED)
    note = _explanation(three_nodes, refused)
    assert note.startswith(f"{WHOLE_CORES} refuses container main: cpu")
    assert f"{THREADS} NUMA 0" in note
    assert _record(three_nodes)["spec"]["reason"] == "SMTAlignmentError"
    assert "Traceback" not in operator.text()


def test_a_pod_refused_since_its_device_plugin_is_gone_is_explained_and_runs_where_one_is(
    three_nodes: Cluster, operator: Operator, tmp_path: Path
) -> None:
    with device_plugin(three_nodes, UNALIGNED, {"nic-0": 0}, tmp_path):
        eventually("the device to be published", lambda: _offers(three_nodes, UNALIGNED, NIC))
    eventually("the device to be gone", lambda: not _offers(three_nodes, UNALIGNED, NIC))
    content = pod("late", 1, node=UNALIGNED)
    content["spec"]["containers"][0]["resources"]["limits"][NIC] = "1"
    refused = three_nodes.create(content)
    replacement = eventually("late to run again", lambda: _replacement(three_nodes, refused))
    assert replacement["spec"]["nodeName"] == THREADS
    note = _explanation(three_nodes, refused)
    assert note.startswith(f"{UNALIGNED} refused late")
    assert f"no healthy devices present; cannot allocate unhealthy devices {NIC}" in note
    assert _record(three_nodes)["spec"]["reason"] == "UnexpectedAdmissionError"
    assert "Traceback" not in operator.text()


@contextmanager
def device_plugin(cluster: Cluster, node: str, devices: dict[str, int], folder: Path) -> Iterator[None]:
    """The sandbox's device plugin, with devices (their NUMA nodes by id) of a node; killed in the end."""
    document = {
        "folder": f"nodes/{node}/kubelet/device-plugins",
        "resource": NIC,
        "devices": [{"id": name, "numa_nodes": [numa_node], "healthy": True} for name, numa_node in devices.items()],
    }
    description = folder / "plugin.json"
    description.write_text(json.dumps([document]))
    process = subprocess.Popen(
        [sys.executable, "-m", "topomend.sandbox.devices.device_plugin", str(description)],
        cwd=cluster.sandbox.folder,
        env={**os.environ, "PYTHONPATH": str(Path(topomend.__file__).parents[1])},
    )
    try:
        yield
    finally:
        process.kill()
        process.wait(60)


def _replacement(cluster: Cluster, refused: dict[str, Any]) -> dict[str, Any] | None:
    pod = cluster.running(refused["metadata"]["name"])
    return pod if pod and pod["metadata"]["uid"] != refused["metadata"]["uid"] else None


def _explanation(cluster: Cluster, refused: dict[str, Any]) -> str:
    events = eventually("the explanation", lambda: events_of(cluster, refused, "TopologyRefusalExplained"))
    return str(events[0]["note"])


def _record(cluster: Cluster) -> dict[str, Any]:
    (record,) = cluster.records()
    return record


def _is_ready(cluster: Cluster, node: str) -> bool:
    conditions = cluster.client.get(NODE_TOPOLOGIES, node).get("status", {}).get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _offers(cluster: Cluster, node: str, resource: str) -> bool:
    """Whether the node's agent has published devices of the resource."""
    devices = cluster.client.get(NODE_TOPOLOGIES, node)["status"].get("devices", ())
    return any(entry["resource"] == resource for entry in devices)
