"""Runs batches of workloads twice on one cluster of real kubelets, and compares which pods run.

The operator runs all the time. In the namespace without steering it only explains, so the plain scheduler is alone.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.builders import pod_manifest
from tests.clusters import Cluster, agents_on, cluster_of, steer
from tests.operator_process import Operator
from tests.waiting import TimedOut, awake, eventually, stretched
from verify.differential.workloads import (
    DEVICE_CLASS,
    DRIVER,
    LABEL,
    NODES,
    PRIORITIES,
    TAINT,
    ZONE,
    Workload,
    api_object,
    random_workload,
)

from topomend.kube.errors import NotFound
from topomend.kube.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODE_TOPOLOGIES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from topomend.kube.resources import NODES as NODE_OBJECTS
from topomend.model.pods.scheduling import REFUSAL_PREFIX
from topomend.sandbox import NodeSpec
from topomend.wire.group import RELAUNCH_ANNOTATION

PLAIN, STEERED = "plain", "steered"

BATCH = 50
"""How many workloads share the cluster at a time: they request a quarter of it."""

POLICIES = ("single-numa-node", "single-numa-node", "restricted", "best-effort", "single-numa-node")
SHAPE = "numa:2 cores:64 memory:128Gi"

STABLE_SECONDS, MOST_SECONDS = 8.0, 120.0
"""How long nothing may change before the plain scheduler has done what it can; how long steering may take for that."""

POLL_SECONDS = 0.5

RESOURCES = {
    "Deployment": Resource("apps/v1", "deployments"),
    "StatefulSet": Resource("apps/v1", "statefulsets"),
    "Job": Resource("batch/v1", "jobs"),
    "PersistentVolume": Resource("v1", "persistentvolumes", namespaced=False),
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "ResourceClaim": RESOURCE_CLAIMS,
    "Pod": PODS,
}


@dataclass(frozen=True)
class Difference:
    """A workload that fared worse when steered, and how."""

    workload: Workload
    problem: str


@dataclass(frozen=True)
class Compared:
    """A batch: how many pods ran ``plain`` and ``steered``, of how many that its workloads want, and what is worse."""

    wanted: int
    plain: int
    steered: int
    worse: tuple[Difference, ...]


@contextmanager
def arena(logs: Path) -> Iterator[Cluster]:
    """The cluster, its agents and the operator, and all that workloads refer to."""
    specs = [
        NodeSpec.of_shape(f"numa-{number}", SHAPE, topology_manager_policy=policy)
        for number, policy in enumerate(POLICIES)
    ]
    with cluster_of(specs) as cluster, agents_on(cluster, logs / "agents.log"):
        eventually("the agents", lambda: len(cluster.client.list(NODE_TOPOLOGIES).items) == len(specs))
        _furnish(cluster)
        operator = Operator(cluster.sandbox.kubeconfig, logs / "operator.log")
        operator.wait_until_it_watches()
        try:
            yield cluster
        finally:
            operator.terminate()
        if "Traceback" in operator.text():
            raise AssertionError(operator.text())


def _furnish(cluster: Cluster) -> None:
    client = cluster.client
    for number in range(len(POLICIES)):
        client.merge(NODE_OBJECTS, f"numa-{number}", {"metadata": {"labels": {ZONE: "ab"[number % 2]}}})
    client.merge(NODE_OBJECTS, f"numa-{NODES}", {"spec": {"taints": [TAINT]}})
    for name, value in PRIORITIES.items():
        client.create(PRIORITY_CLASSES, api_object(PRIORITY_CLASSES.api_version, "PriorityClass", name, value=value))
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    device_class = api_object(DEVICE_CLASSES.api_version, "DeviceClass", DEVICE_CLASS, spec={"selectors": [selector]})
    client.create(DEVICE_CLASSES, device_class)
    for number in range(2):
        node = f"numa-{number}"
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"{DEVICE_CLASS}-{index}"} for index in range(BATCH)]
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        slice_name = f"{DEVICE_CLASS}-{node}"
        client.create(RESOURCE_SLICES, api_object(RESOURCE_SLICES.api_version, "ResourceSlice", slice_name, spec=spec))
    namespace = api_object("v1", "Namespace", PLAIN)
    namespace["metadata"]["annotations"] = {RELAUNCH_ANNOTATION: "false"}
    client.create(NAMESPACES, namespace)
    steer(cluster, STEERED)


def compare(cluster: Cluster, seed: int, numbers: range) -> Compared:
    """Run the workloads of these numbers in both ways."""
    _check_gated(cluster)
    plain, _ = _run(cluster, PLAIN, _batch(seed, numbers, PLAIN))
    batch = _batch(seed, numbers, STEERED)
    steered, pods = _run(cluster, STEERED, batch, plain)
    worse = tuple(
        Difference(workload, problem) for workload in batch for problem in _problems(workload, plain, steered, pods)
    )
    wanted = sum(workload.pods for workload in batch)
    return Compared(wanted, sum(plain.values()), sum(steered.values()), worse)


def _check_gated(cluster: Cluster) -> None:
    """Gating ends where the operator does not renew it: the run would be a plain one. Raises TimedOut."""
    made = cluster.client.create(PODS, pod_manifest("tried-again", "cpu=1 memory=64Mi"), STEERED, dry_run=True)
    if not made["spec"].get("schedulingGates"):
        raise TimedOut("new pods are not gated: the operator has not renewed its policies")


def _batch(seed: int, numbers: range, namespace: str) -> list[Workload]:
    return [random_workload(Random(f"{seed} {number}"), number, namespace) for number in numbers]


def _run(
    cluster: Cluster, namespace: str, batch: Sequence[Workload], least: Mapping[str, int] | None = None
) -> tuple[Mapping[str, int], Sequence[dict[str, Any]]]:
    """How many pods of each workload have run, and all pods as they were in the end."""
    for workload in batch:
        for content in workload.objects:
            cluster.client.create(RESOURCES[content["kind"]], content, namespace)
    up = _outcome(cluster, namespace, batch, least)
    pods = _pods(cluster, namespace)
    _remove(cluster, namespace, batch)
    return up, pods


def _problems(
    workload: Workload, plain: Mapping[str, int], steered: Mapping[str, int], pods: Sequence[dict[str, Any]]
) -> Iterator[str]:
    own = [pod for pod in pods if _workload_of(pod) == workload.name]
    before, after = plain.get(workload.name, 0), steered.get(workload.name, 0)
    if after < before:
        missing = "; ".join(_why(pod) for pod in own if not _is_up(pod, enough_bound=workload.bound))
        yield f"{before} of {workload.pods} pods run plain, {after} steered: {missing}"
    refused = sum(map(_is_refused, own))
    if refused:
        yield f"{refused} pods were refused although they were steered"


def _outcome(
    cluster: Cluster, namespace: str, batch: Sequence[Workload], least: Mapping[str, int] | None
) -> Mapping[str, int]:
    """How many pods of each workload have run: at ``least`` so many, where that comes in time."""
    enough_bound = {workload.name for workload in batch if workload.bound}
    wanted = {workload.name: workload.pods for workload in batch} if least is None else least
    began = changed = awake()
    up: Mapping[str, int] = {}
    patience = STABLE_SECONDS if least is None else MOST_SECONDS
    while awake() - changed < stretched(patience) and awake() - began < stretched(MOST_SECONDS):
        pods = _pods(cluster, namespace)
        now = Counter(_workload_of(pod) for pod in pods if _is_up(pod, enough_bound=_workload_of(pod) in enough_bound))
        if now != up:
            up, changed = now, awake()
        if all(up.get(name, 0) >= count for name, count in wanted.items()):
            break
        time.sleep(POLL_SECONDS)
    return up


def _pods(cluster: Cluster, namespace: str) -> Sequence[dict[str, Any]]:
    return cluster.client.list(PODS, namespace=namespace).items


def _workload_of(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["labels"][LABEL])


def _is_up(pod: Mapping[str, Any], *, enough_bound: bool) -> bool:
    phase = pod["status"].get("phase")
    return phase in ("Running", "Succeeded") or (enough_bound and phase == "Pending" and "nodeName" in pod["spec"])


def _is_refused(pod: Mapping[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Failed" and pod["status"].get("message", "").startswith(REFUSAL_PREFIX))


def _why(pod: Mapping[str, Any]) -> str:
    conditions = pod["status"].get("conditions", ())
    messages = [condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled"]
    return f"{pod['metadata']['name']} {pod['status'].get('phase')} {pod['status'].get('message', '')} {messages}"


def _remove(cluster: Cluster, namespace: str, batch: Sequence[Workload]) -> None:
    """Remove everything of the batch; the next one finds empty nodes, as their agents know."""
    for workload in batch:
        for content in workload.objects:
            resource, name = RESOURCES[content["kind"]], content["metadata"]["name"]
            within = namespace if resource.namespaced else ""
            with suppress(NotFound):
                made = cluster.client.get(resource, name, within)
                cluster.client.delete(resource, name, within, uid=made["metadata"]["uid"])

    def are_gone() -> bool:
        pods = _pods(cluster, namespace)
        for pod in pods:
            cluster.remove(pod)
        return not pods

    eventually("the pods to be gone", are_gone, 60)
    eventually(
        "the agents to know",
        lambda: not any(_holds(topology) for topology in cluster.client.list(NODE_TOPOLOGIES).items),
        60,
    )


def _holds(topology: Mapping[str, Any]) -> bool:
    return bool(topology.get("status", {}).get("pods"))
