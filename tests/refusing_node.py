"""A cluster on which every pod of ours is refused by one node's kubelet, and has room on the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.clusters import NODE_A, NODE_B, Cluster, agents_on, cluster_of, pod
from tests.waiting import eventually

from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.sandbox import NodeSpec

ASKED = 3
"""CPUs that a pod asks for: more than either NUMA node of numa-a has, and fewer than it has together."""


@contextmanager
def refusing_cluster(shape: str) -> Iterator[Cluster]:
    """numa-a has three CPUs, two of them on one NUMA node at most; numa-b has this shape. Both have their agents."""
    settings = {"topology_manager_policy": "single-numa-node"}
    specs = [
        NodeSpec.of_shape(NODE_A, "numa:2 cores:2 memory:4Gi", **settings),
        NodeSpec.of_shape(NODE_B, shape, **settings),
    ]
    with cluster_of(specs) as cluster, agents_on(cluster):
        eventually("both agents to publish", lambda: _published(cluster) == 2)
        yield cluster


def _published(cluster: Cluster) -> int:
    return sum("status" in topology for topology in cluster.client.list(NODE_TOPOLOGIES).items)


def refused_pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod that is numa-a's by name and not by size."""
    return pod(name, ASKED, node=NODE_A, **metadata)
