"""Pods that the operator has ungated for nodes that no scheduler uses."""

from typing import Any

from tests.clusters import Cluster, pod
from tests.waiting import eventually

from topomend.kube.resources import PODS
from topomend.model.narrowing import Narrowing
from topomend.model.pods.scheduling import WatchedPod
from topomend.relaunch import manifest
from topomend.wire.group import FIT_GATE
from topomend.wire.pods.scheduling import read_watched_pod

NOWHERE = "nowhere"
"""The hostname that they were narrowed to, which no node has until a test gives it to one."""


def unbound(cluster: Cluster, name: str, namespace: str = "default", **metadata: Any) -> WatchedPod:
    """A pod without a controller for which the scheduler has found no node."""
    content = pod(name, 1, **metadata)
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    return narrowed(cluster, cluster.create(content, namespace))


def narrowed(cluster: Cluster, gated: dict[str, Any]) -> WatchedPod:
    """Ungate a pod as the operator does, and wait until the scheduler has found no node for it."""
    name, namespace = gated["metadata"]["name"], gated["metadata"]["namespace"]
    cluster.client.merge(PODS, name, manifest.launch(read_watched_pod(gated), Narrowing((NOWHERE,))), namespace)
    return eventually("the scheduler to find no node", lambda: _unschedulable(cluster, name, namespace))


def bind(cluster: Cluster, pod: WatchedPod, node: str) -> None:
    """Bind a pod as a scheduler does."""
    target = {"kind": "Node", "name": node}
    metadata = {"name": pod.name, "uid": pod.uid}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    cluster.client._ask("POST", f"{PODS.path(pod.namespace, pod.name)}/binding", binding)


def _unschedulable(cluster: Cluster, name: str, namespace: str) -> WatchedPod | None:
    watched = read_watched_pod(cluster.get(name, namespace))
    return watched if watched.unschedulable else None
