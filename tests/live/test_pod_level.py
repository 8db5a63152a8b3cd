"""A kubelet with pod-level resource managers: what a pod holds as a whole is read with and without its state files.

Slow because it needs a sandbox.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders import pod_manifest
from tests.waiting import eventually

from topomend.discover.allocations import AllocationReader
from topomend.kube.client import Client, connect
from topomend.kube.resources import PODS
from topomend.model.nodes.node_state import PodAllocation
from topomend.sandbox import NodeSpec, Sandbox

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NODE = "pod-level"
SPEC = NodeSpec.of_shape(
    NODE,
    "numa:2 cores:6 memory:8Gi",
    topology_manager_policy="single-numa-node",
    topology_manager_scope="pod",
    feature_gates=dict.fromkeys(("PodLevelResources", "PodLevelResourceManagers"), True),
)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.up([SPEC], on_progress=print) as up:
        yield up


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[Client]:
    connected = connect(str(sandbox.kubeconfig))
    yield connected
    connected.close()


def test_the_cpus_and_memory_of_a_whole_pod_are_the_same_from_either_source(sandbox: Sandbox, client: Client) -> None:
    limits = {"limits": {"cpu": "2", "memory": "64Mi"}}
    content = pod_manifest("train", {"name": "main", "image": "sandbox/pause", "resources": limits})
    content["spec"]["containers"].append({"name": "sidecar", "image": "sandbox/pause"})
    content["spec"]["resources"] = {key: {"cpu": "4", "memory": "256Mi"} for key in ("requests", "limits")}
    client.create(PODS, content, "default")
    eventually("it to run", lambda: client.get(PODS, "train", "default")["status"].get("phase") == "Running", 60)
    kubelet = sandbox.folder / "nodes" / NODE / "kubelet"
    from_files, from_api = _train(kubelet, kubelet), _train(kubelet, None)
    assert from_api.cpus.bit_count() == 4
    assert (from_api.cpus, from_api.memory) == (from_files.cpus, from_files.memory)
    main, sidecar = from_files.containers
    assert (main.cpus.bit_count(), sidecar.cpus.bit_count()) == (2, 2), "the sidecar shares what is left of its pod's"
    assert main.cpus | sidecar.cpus == from_files.cpus
    assert from_api.containers == (main,), "the API lists the sidecar without what it shares"


def _train(kubelet: Path, state: Path | None) -> PodAllocation:
    """What an agent reads of the pod with or without the kubelet's state files."""
    read = AllocationReader(kubelet / "pod-resources" / "kubelet.sock", state).read()
    assert read.problem == ""
    (train,) = read.pods
    return train
