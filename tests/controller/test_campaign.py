"""The campaign of moves on real kubelets: fragmented GPUs become whole ones, and the pods that wait for them run."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.audit_log import audited
from tests.clusters import DEPLOYMENTS, Cluster, agents_on, cluster_of, cordon, events_of, pod, shown, steer, uncordon
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.errors import NotFound
from topomend.kube.resources import BUDGETS, NODE_TOPOLOGIES, PODS, STATEFUL_SETS, Resource
from topomend.model.bitmask import NUMAMask, mask_of
from topomend.sandbox import NodeSpec
from topomend.wire.published.node_topology import read_node_topology

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

NAMES = ("gpu-a", "gpu-b", "gpu-c")
NAMESPACE = "steered"
GPU = "vendor.com/gpu"
ONE = {"app": "one"}
CAMPAIGN = "tests.controller.operator_with_short_rests"
STAYS = "example.com/stays"
SECONDS_APART = 4.0
FLAGS = ("--defragment", f"--defragment-rate={3600 / SECONDS_APART}", "--defragment-minutes=0.05")


@pytest.fixture(scope="module")
def gpus() -> Iterator[Cluster]:
    """Three nodes of two NUMA nodes with two and four GPUs, of which the two are in use, and a steered namespace."""
    shape = f"numa:2 cores:8 memory:4Gi device:{GPU}@0=2,1=4"
    specs = [NodeSpec.of_shape(name, shape, topology_manager_policy="single-numa-node") for name in NAMES]
    with cluster_of(specs) as it, agents_on(it):
        eventually("the agents to publish", lambda: len(it.client.list(NODE_TOPOLOGIES).items) == len(NAMES))
        steer(it, NAMESPACE)
        for name in NAMES:
            it.create(of_gpus(f"filler-{name}", 2, node=name))
            eventually("it to be published", lambda: f"filler-{name}" in shown(it, name))  # noqa: B023
        yield it


def of_gpus(name: str, count: int, **fields: Any) -> dict[str, Any]:
    """A pod of so many GPUs and CPUs."""
    content = pod(name, count, **fields)
    content["spec"]["containers"][0]["resources"]["limits"][GPU] = str(count)
    content["spec"]["terminationGracePeriodSeconds"] = 1
    return content


def test_scattered_gpus_become_whole_sets_and_the_pods_that_wait_for_them_run(
    gpus: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NUMA node 0 of each node is full; on NUMA node 1 a replica of one GPU keeps a pod of four out."""
    monkeypatch.setenv("LEAST_AGE_SECONDS", "2")
    with operator(gpus, tmp_path / "before.log"):
        spread(gpus)
        wanting = [gpus.create(of_gpus(name, 4), NAMESPACE) for name in ("want-1", "want-2")]
        for content in wanting:
            eventually("it to wait", lambda: events_of(gpus, content, "UngateDeferred"))  # noqa: B023
    keep_two(gpus)
    with operator(gpus, tmp_path / "campaign.log", *FLAGS, module=CAMPAIGN) as campaign:
        for content in wanting:
            name = content["metadata"]["name"]
            running = eventually(f"{name} to run", lambda: runs(gpus, name), 120.0)  # noqa: B023
            node = running["spec"]["nodeName"]
            eventually("its four GPUs to be on one NUMA node", lambda: numa_nodes(gpus, node, name) == 0b10)  # noqa: B023
        deployment = gpus.client.get(DEPLOYMENTS, "one", NAMESPACE)
        eventually("two moves to be told", lambda: len(events_of(gpus, deployment, "Defragmented")) == 2)
        assert "Traceback" not in campaign.text()
    evicted = evictions(gpus)
    assert len(evicted) == 2
    assert len({name for _, name in evicted}) == 2, "nobody twice"
    assert evicted[1][0] - evicted[0][0] >= SECONDS_APART
    assert len(events_of(gpus, deployment, "Defragmenting")) == 2
    assert [each["metadata"]["name"] for each in gpus.pods() if each["status"]["phase"] == "Failed"] == []
    assert len([each for each in ones(gpus) if each["status"]["phase"] == "Running"]) == 3


@pytest.mark.night  # tests/reconcile/defragment has it in a model
def test_a_parallel_stateful_set_that_grows_while_the_moved_pod_ends_gives_the_place_to_the_next_one(
    gpus: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its further pod comes first, because the moved one ends only once a finalizer is gone."""
    monkeypatch.setenv("LEAST_AGE_SECONDS", "2")
    clear(gpus)
    with operator(gpus, tmp_path / "set-before.log"):
        spread(gpus, STATEFUL_SETS, podManagementPolicy="Parallel", serviceName="one")
        want = gpus.create(of_gpus("want-3", 4), NAMESPACE)
        eventually("it to wait", lambda: events_of(gpus, want, "UngateDeferred"))
    for number in range(len(NAMES)):
        gpus.client.merge(PODS, f"one-{number}", {"metadata": {"finalizers": [STAYS]}}, NAMESPACE)
    with operator(gpus, tmp_path / "set.log", *FLAGS, module=CAMPAIGN) as campaign:
        owner = gpus.client.get(STATEFUL_SETS, "one", NAMESPACE)
        [told] = eventually("a pod to be moved", lambda: events_of(gpus, owner, "Defragmenting"), 120.0)
        moved = told["note"].split()[0]
        gpus.client.merge(STATEFUL_SETS, "one", {"spec": {"replicas": len(NAMES) + 1}}, NAMESPACE)
        further = f"one-{len(NAMES)}"
        eventually("the further pod to run", lambda: runs(gpus, further), 60.0)
        assert gpus.get(moved, NAMESPACE)["metadata"].get("deletionTimestamp"), "it is there still"
        gpus.client.merge(PODS, moved, {"metadata": {"finalizers": None}}, NAMESPACE)
        [done] = eventually("the move to be told", lambda: events_of(gpus, owner, "Defragmented"), 60.0)
        assert done["note"].startswith(f"{moved} was moved: {moved} runs on ")
        assert events_of(gpus, owner, "DefragmentationFailed") == []
        assert "Traceback" not in campaign.text()


def clear(cluster: Cluster) -> None:
    """Delete what another test has left in the namespace."""
    for resource in (DEPLOYMENTS, BUDGETS, PODS):
        for item in cluster.client.list(resource, namespace=NAMESPACE).items:
            name, uid = item["metadata"]["name"], item["metadata"]["uid"]
            with suppress(NotFound):  # its controller is being deleted too
                cluster.client.delete(resource, name, NAMESPACE, uid=uid)
    for name in NAMES:
        eventually(f"{name} to have the others no more", lambda: shown(cluster, name) == {f"filler-{name}"}, 60.0)  # noqa: B023


@contextmanager
def operator(cluster: Cluster, log: Path, *flags: str, module: str = "") -> Iterator[Operator]:
    started = Operator(cluster.sandbox.kubeconfig, log, *flags, module=module)
    try:
        started.wait_until_it_watches()
        yield started
    finally:
        started.terminate()
        print(started.text())


def spread(cluster: Cluster, resource: Resource = DEPLOYMENTS, **fields: str) -> None:
    """A Deployment or StatefulSet of three replicas, each of which was created while the other nodes were cordoned."""
    template = {"metadata": {"labels": ONE}, "spec": of_gpus("", 1)["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": ONE}, "template": template, **fields}
    kind = "Deployment" if resource == DEPLOYMENTS else "StatefulSet"
    content = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": "one"}, "spec": spec}
    cluster.client.create(resource, content, NAMESPACE)
    for number, node in enumerate(NAMES, 1):
        uncordon(cluster, node)
        cordon(cluster, *(other for other in NAMES if other != node))
        cluster.client.merge(resource, "one", {"spec": {"replicas": number}}, NAMESPACE)
        eventually(f"a replica on {node}", lambda: node in running_nodes(cluster))  # noqa: B023
    uncordon(cluster, *NAMES)


def keep_two(cluster: Cluster) -> None:
    """A budget that lets one of the three go at a time."""
    head = {"apiVersion": BUDGETS.api_version, "kind": "PodDisruptionBudget", "metadata": {"name": "one"}}
    spec = {"minAvailable": 2, "selector": {"matchLabels": ONE}}
    cluster.client.create(BUDGETS, head | {"spec": spec}, NAMESPACE)
    eventually(
        "the budget to be worked out",
        lambda: cluster.client.get(BUDGETS, "one", NAMESPACE).get("status", {}).get("disruptionsAllowed") == 1,
    )


def ones(cluster: Cluster) -> list[dict[str, Any]]:
    return [each for each in cluster.pods() if each["metadata"].get("labels", {}).get("app") == "one"]


def running_nodes(cluster: Cluster) -> set[str]:
    return {each["spec"]["nodeName"] for each in ones(cluster) if each["status"]["phase"] == "Running"}


def runs(cluster: Cluster, name: str) -> dict[str, Any] | None:
    content = cluster.get(name, NAMESPACE)
    return content if content["status"].get("phase") == "Running" else None


def numa_nodes(cluster: Cluster, node: str, name: str) -> NUMAMask:
    """Where the pod's CPUs are, by what the node's agent publishes; 0 where it has none yet."""
    state = read_node_topology(cluster.client.get(NODE_TOPOLOGIES, node))
    cpus = sum(container.cpus for each in state.pods if each.name == name for container in each.containers)
    return mask_of(number for number, local in state.machine.cpus_of_numa_node.items() if local & cpus)


def evictions(cluster: Cluster) -> list[tuple[float, str]]:
    """When each pod was evicted, and its name, by the API server's audit log."""
    assert cluster.sandbox.audit_log
    found = []
    for event in audited(cluster.sandbox.audit_log):
        target = event.get("objectRef", {})
        is_eviction = (target.get("resource"), target.get("subresource")) == (PODS.plural, "eviction")
        if is_eviction and event["responseStatus"]["code"] < 300:
            found.append((datetime.fromisoformat(event["stageTimestamp"]).timestamp(), target["name"]))
    return found
