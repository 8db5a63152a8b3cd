"""Pods that a real kubelet has refused, and pods behind the fit gate, as the operator watches them."""

from typing import Any

from tests.clusters import NODE_A, Cluster, pod
from tests.waiting import eventually

from topomend.model.pods.scheduling import WatchedPod
from topomend.wire.group import FIT_GATE
from topomend.wire.pods.scheduling import read_watched_pod

TOO_MANY = 5
"""CPUs that no NUMA node of the two nodes has."""


def refused(cluster: Cluster, name: str, **metadata: Any) -> WatchedPod:
    """A pod that the kubelet of numa-a has refused with TopologyAffinityError."""
    cluster.create(pod(name, TOO_MANY, node=NODE_A, **metadata))
    eventually(f"{name} to be refused", lambda: cluster.phase(name) == "Failed")
    return watched(cluster, name)


def gated(cluster: Cluster, name: str, cpus: int = 2, *foreign_gates: str, **metadata: Any) -> WatchedPod:
    """A pod behind the fit gate, and behind these gates of others."""
    content = pod(name, cpus, **metadata)
    content["spec"]["schedulingGates"] = [{"name": gate} for gate in (FIT_GATE, *foreign_gates)]
    return read_watched_pod(cluster.create(content))


def watched(cluster: Cluster, name: str) -> WatchedPod:
    """The pod as the API server has it now."""
    return read_watched_pod(cluster.get(name))


def gates(cluster: Cluster, name: str) -> tuple[str, ...]:
    """The gates of a pod as the API server has it now."""
    return watched(cluster, name).gates
