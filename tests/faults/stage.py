"""A cluster on which every pod of ours is refused by one node's kubelet, and has room on the other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.controller.conftest import NODE_A, NODE_B, Cluster, pod, start_agent, wait_for

from topomend.kube.client import NODE_TOPOLOGIES, connect
from topomend.model.node_state import NodeState
from topomend.sandbox import NodeSpec, Sandbox

ASKED = 3
"""CPUs that a pod asks for: more than either NUMA node of numa-a has, and fewer than it has together."""


@contextmanager
def lopsided_cluster(shape: str) -> Iterator[Cluster]:
    """numa-a has three CPUs, two of them on one NUMA node at most; numa-b has this shape. Both have their agents."""
    settings = {"topology_manager_policy": "single-numa-node"}
    specs = [
        NodeSpec.of_shape(NODE_A, "numa:2 cores:2 memory:4Gi", **settings),
        NodeSpec.of_shape(NODE_B, shape, **settings),
    ]
    with Sandbox.up(specs, audit=True) as sandbox:
        client = connect(str(sandbox.kubeconfig))
        states = {each.name: NodeState(each.name, each.machine, each.kubelet, each.devices) for each in specs}
        cluster = Cluster(sandbox, client, states)
        cluster.install_kind("nodetopologies")
        cluster.install_kind("relaunches")
        agents = [start_agent(cluster, name) for name in (NODE_A, NODE_B)]
        try:
            wait_for("both agents to publish", lambda: _published(cluster) == 2)
            yield cluster
        finally:
            for agent in agents:
                agent.terminate()
                agent.wait(10)
            client.close()


def _published(cluster: Cluster) -> int:
    return sum("status" in each for each in cluster.client.list(NODE_TOPOLOGIES).items)


def refused_pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod that is numa-a's by name and not by size."""
    return pod(name, ASKED, node=NODE_A, **metadata)
