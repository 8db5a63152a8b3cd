"""A node whose device plugins come back later than its kubelet: after a reboot, and after a restart of the kubelet.

After a reboot its kubelet refuses the node's own pods one by one, because their devices are not there
(kubernetes/kubernetes#128043). What a kubelet finds running it leaves alone, but for a pod whose init container had a
device (kubernetes/kubernetes#138446).
"""

import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import DEPLOYMENTS, Cluster, agents_on, brake_on, cluster_of, events_of, pod
from tests.operator_process import Operator
from tests.waiting import consistently, eventually

from topomend.kube.resources import NODE_TOPOLOGIES, NODES
from topomend.model.nodes.node_state import InitialContainer, restarted
from topomend.replay.admission import admit
from topomend.replay.errors import MESSAGE_PREFIX
from topomend.sandbox import NodeSpec
from topomend.sandbox.node.kubelet import CRI_SOCKET
from topomend.sandbox.plan import DEVICE_PLUGIN, RUNTIME, kubelet_program
from topomend.wire.pods.pod import read_pod
from topomend.wire.published.node_topology import read_node_topology

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

NODE, GPU = "gpus", "vendor.com/gpu"
BARE, REPLICAS = 4, 6
AWAY_SECONDS = 5.0
"""How long the device plugin is away after the kubelet has refused the last pod."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One node with ten devices, its agent, and the brake's policy."""
    spec = NodeSpec.of_shape(
        NODE,
        f"numa:2 cores:8 memory:8Gi device:{GPU}@0=5,1=5",
        topology_manager_policy="single-numa-node",
        memory_manager_policy="None",
    )
    with cluster_of([spec]) as made, agents_on(made), brake_on(made):
        eventually("the agent to publish", lambda: made.client.get(NODE_TOPOLOGIES, NODE).get("status"))
        yield made


@pytest.fixture
def operator(cluster: Cluster, tmp_path: Path) -> Iterator[Operator]:
    """An operator that watches, and ten pods that run with a device each."""
    started = Operator(cluster.sandbox.kubeconfig, tmp_path / "operator.log")
    started.wait_until_it_watches()
    eventually("all devices to be free", lambda: _allocatable(cluster) == BARE + REPLICAS)
    for number in range(BARE):
        cluster.create(with_device(f"bare-{number}", app="bare"))
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": with_device("", **labels)["spec"]}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    made = cluster.client.create(DEPLOYMENTS, deployment, "default")
    eventually("all pods to run", lambda: len(_running(cluster)) == BARE + REPLICAS, 60)
    yield started
    started.terminate()
    print(started.text())
    cluster.client.delete(DEPLOYMENTS, "web", "default", uid=made["metadata"]["uid"])
    cluster.remove_all()


def with_device(name: str, **labels: str) -> dict[str, Any]:
    content = pod(name, 1, labels=labels)
    content["spec"]["containers"][0]["resources"]["limits"][GPU] = "1"
    return content


def _refusals(cluster: Cluster, *pods: dict[str, Any]) -> dict[str, str]:
    """By the kubelet's events, the message of each of these pods that it has refused."""
    return {
        pod["metadata"]["name"]: f"{MESSAGE_PREFIX}{event['note']}"
        for pod in pods
        for event in events_of(cluster, pod, "UnexpectedAdmissionError")
    }


def _names(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods()}


def _published(cluster: Cluster) -> set[str]:
    return {pod["name"] for pod in cluster.client.get(NODE_TOPOLOGIES, NODE)["status"].get("pods", ())}


def _allocatable(cluster: Cluster) -> int:
    return int(cluster.client.get(NODES, NODE)["status"]["allocatable"].get(GPU, 0))


def _running(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.pods() if pod["status"].get("phase") == "Running"}


def _failed(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["uid"]: pod for pod in cluster.pods() if pod["status"].get("phase") == "Failed"}


@pytest.mark.night  # a minute of reboots; test_owners has refused pods of each owner
def test_after_a_reboot_each_pod_is_refused_once_and_no_husk_stays(cluster: Cluster, operator: Operator) -> None:
    before, refused = _running(cluster), dict[str, dict[str, Any]]()
    supervisor = cluster.sandbox._supervisor
    supervisor.stop([kubelet_program(NODE), DEVICE_PLUGIN, RUNTIME])
    supervisor.start([RUNTIME])
    path = cluster.sandbox.folder / "nodes" / NODE / "kubelet" / CRI_SOCKET.name
    eventually("the runtime, without which a kubelet ends", lambda: _answers(path))
    supervisor.start([kubelet_program(NODE)])

    def look() -> dict[str, dict[str, Any]]:
        refused.update(_failed(cluster))
        return refused

    def has_refused_all() -> bool:
        failed = look()
        return all(pod["metadata"]["uid"] not in before - failed.keys() for pod in cluster.pods())

    eventually("each pod to be refused, or gone", has_refused_all, 60, poll=0.1)
    consistently("no pod to run", lambda: look() and not _running(cluster), AWAY_SECONDS, poll=0.2)
    supervisor.start([DEVICE_PLUGIN])

    def recovered() -> bool:
        look()
        return len(_running(cluster)) == BARE + REPLICAS and not _failed(cluster)

    eventually("every pod to run again, and no husk", recovered, 60)
    assert before.isdisjoint(_running(cluster))
    assert set(refused) <= before  # none that came after the reboot was refused
    assert {pod["status"]["reason"] for pod in refused.values()} == {"UnexpectedAdmissionError"}
    bare = next(pod for pod in refused.values() if pod["metadata"]["name"].startswith("bare"))
    explained = eventually("its explanation", lambda: events_of(cluster, bare, "TopologyRefusalExplained"))
    assert f"unhealthy devices {GPU}: their plugin is not back yet" in explained[0]["note"]
    assert "NoNodeCanEverAdmit" not in operator.text()
    assert f"{GPU} of {NODE} is unhealthy, or its device plugin is not back yet" in operator.text()
    assert "Traceback" not in operator.text()


def _answers(path: Path) -> bool:
    """Whether somebody listens there: the runtime before may have left its socket behind."""
    folder = os.open(path.parent, os.O_PATH)  # the whole path may be longer than that of a socket can be
    try:
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(f"/proc/self/fd/{folder}/{path.name}") == 0
    finally:
        os.close(folder)


def after_an_init_container(name: str) -> dict[str, Any]:
    """A pod whose init container had a device, which its main container has since."""
    content = with_device(name)
    fetch = {**content["spec"]["containers"][0], "name": "fetch", "command": ["true"]}
    content["spec"]["initContainers"] = [fetch]
    return content


def found_containers(pods: Iterable[dict[str, Any]]) -> list[InitialContainer]:
    """What a kubelet that restarts finds of these pods in its runtime, by their status."""
    return [
        InitialContainer(pod["metadata"]["uid"], status["name"], "running" in status["state"])
        for pod in pods
        for kind in ("initContainerStatuses", "containerStatuses")
        for status in pod["status"].get(kind, ())
    ]


def predicted(cluster: Cluster) -> dict[str, str]:
    """By replay, the message of each pod that the kubelet refuses when it restarts while the plugin is away."""
    pods = cluster.pods()
    published = read_node_topology(cluster.client.get(NODE_TOPOLOGIES, NODE))
    state = restarted(published, found_containers(pods), [GPU])
    verdicts = [admit(state, read_pod(pod))[0] for pod in pods]
    return {verdict.name: verdict.message for verdict in verdicts if not verdict.admitted}


@pytest.mark.night
def test_after_a_restart_of_the_kubelet_only_a_pod_whose_init_container_had_a_device_waits_for_the_plugin(
    cluster: Cluster, operator: Operator
) -> None:
    cluster.remove(cluster.get("bare-1"))
    eventually("a device to be free", lambda: "bare-1" not in _names(cluster))
    fetched = cluster.create(after_an_init_container("fetched"))
    eventually("its init container to end", lambda: cluster.running("fetched"), 60)
    eventually("the agent to publish it", lambda: "fetched" in _published(cluster))
    running, before, expected = cluster.pods(), _running(cluster), predicted(cluster)
    assert expected == {
        "fetched": "Pod was rejected: Allocate failed due to no healthy devices present; "
        f"cannot allocate unhealthy devices {GPU}, which is unexpected"
    }
    supervisor = cluster.sandbox._supervisor
    supervisor.stop([kubelet_program(NODE), DEVICE_PLUGIN])
    supervisor.start([kubelet_program(NODE)])
    try:
        eventually("the node to have no devices", lambda: _allocatable(cluster) == 0)
        eventually("the kubelet to refuse one", lambda: _refusals(cluster, fetched), 60)
        consistently("no other pod to be refused", lambda: _refusals(cluster, *running) == expected, AWAY_SECONDS)
        cluster.remove(cluster.get("bare-0"))
        cluster.create(with_device("next"))
        consistently("the new pod to wait", lambda: "nodeName" not in cluster.get("next")["spec"], 2)
    finally:
        supervisor.start([DEVICE_PLUGIN])
    eventually("the new pod to run", lambda: cluster.running("next"), 60)
    assert len(before & _running(cluster)) == BARE + REPLICAS - 2
    assert "ReplayMismatch" not in operator.text()
    assert "Traceback" not in operator.text()
