"""What topomend publishes of a node is what schedulers read, by their own code."""

import subprocess
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import node_state, pod_allocation
from verify.schedulers.read import read_by_schedulers

from topomend.discover.features.zones import placements, zones
from topomend.kube.errors import NotFound
from topomend.model.nodes.node_state import Device, NodeState
from topomend.publish.node_resource_topology import Figures, NodeResourceTopologyPublisher
from topomend.publish.publisher import NodeFacts
from topomend.wire.published.node_resource_topology import PLACEMENT

pytestmark = pytest.mark.night  # its program is built of modules that the Go proxy has

DEFAULT_MOST = 8
"""Where the kubelet has no option, as its own default."""


class Server:
    """An API server that has no object yet, and keeps the first one."""

    def __init__(self) -> None:
        self.object: dict[str, Any] = {}

    def node_resource_topology(self, name: str) -> dict[str, Any]:
        raise NotFound(404, "NotFound", name)

    def apply_node_resource_topology(self, _: str, content: Any, manager: str) -> dict[str, Any]:
        assert manager
        self.object = dict(content)
        return self.object


def published(state: NodeState) -> dict[str, Any]:
    """The object that an agent applies for a node of this state."""
    server = Server()
    figures = Figures(state.kubelet, [("default", "p")], lambda: zones(state), lambda: placements(state))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    NodeResourceTopologyPublisher(server, "n1", lambda: 0.0).publish(figures, ready, NodeFacts("uid", "v1.37.2"))
    return server.object


def state_of(policy: str, scope: str) -> NodeState:
    """Four NUMA nodes with a GPU on two of them, and pods that hold CPUs of the second and of the third one."""
    shape = "sockets:2 numa:2 cores:4 memory:8Gi hugepages-2Mi:8"
    empty = node_state(shape, policy=policy, scope=scope, memory_manager="Static", reserved_memory="1Gi")
    devices = (Device("nvidia.com/gpu", "a", (1,)), Device("nvidia.com/gpu", "b", (2,)))
    return replace(empty, devices=devices, pods=(pod_allocation("p", "5-7"), pod_allocation("q", "8")))


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_the_scheduler_plugin_reads_policy_zones_costs_and_amounts(policy: str, scope: str) -> None:
    state = state_of(policy, scope)
    read = read_by_schedulers(published(state))
    assert (read["policy"], read["scope"], read["maxNUMANodes"]) == (policy, scope, DEFAULT_MOST)
    expected: list[dict[str, Any]] = [
        {
            "numaNode": zone.numa_node,
            "costs": {str(node): distance for node, distance in zone.distances.items()},
            "allocatable": {resource.name: resource.allocatable for resource in zone.resources},
            "available": {resource.name: resource.available for resource in zone.resources},
        }
        for zone in zones(state)
    ]
    assert read["zones"] == expected
    assert [zone["available"].get("cpu") for zone in expected] == [3, 1, 3, 4]
    assert [zone["available"].get("nvidia.com/gpu") for zone in expected] == [None, 1, 1, None]


def test_the_scheduler_plugin_reads_how_many_numa_nodes_a_kubelet_takes() -> None:
    state = state_of("restricted", "container")
    options = {"max-allowable-numa-nodes": "16"}
    kubelet = replace(state.kubelet, topology_manager_policy_options=options)
    assert read_by_schedulers(published(replace(state, kubelet=kubelet)))["maxNUMANodes"] == 16


def test_the_scheduler_plugin_takes_no_other_field() -> None:
    """So each field of ours is one that the API has, those of placements too."""
    content = published(state_of("single-numa-node", "container"))
    assert any(attribute["name"] == PLACEMENT for attribute in content["attributes"])
    assert any("attributes" in zone for zone in content["zones"])
    read_by_schedulers(content)
    with pytest.raises(subprocess.CalledProcessError) as raised:
        read_by_schedulers(content | {"zone": []})
    assert 'unknown field "zone"' in raised.value.stderr
