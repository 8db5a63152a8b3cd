"""What the containers of a pod hold of their machine, as their kubelet tells it (PodResources API v1).

Whoever develops NUMA-aware software asks a sandbox this question. The agent asks the same socket through ``discover``,
which bounds the answer of a kubelet that it does not trust.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from topomend.discover import podresources_pb2 as messages
from topomend.model.bitmask import members
from topomend.model.machine import Machine
from topomend.sandbox import layout
from topomend.sandbox.failures import SandboxError

TIMEOUT_SECONDS = 10.0
MOST_BYTES = 16 << 20
"""The limit of the kubelet's own client (pkg/kubelet/apis/podresources/constants.go)."""

_LIST = "/v1.PodResourcesLister/List"


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """What one container holds exclusively: ids of CPUs, and of devices by resource.

    A container of the shared pool has no ``cpus``. The fields ``*_numa_nodes`` are the ids of the NUMA nodes of its
    CPUs, of its memory, which a static Memory Manager alone pins, and of its devices.
    """

    name: str
    cpus: frozenset[int] = frozenset()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cpu_numa_nodes: frozenset[int] = frozenset()
    memory_numa_nodes: frozenset[int] = frozenset()
    device_numa_nodes: frozenset[int] = frozenset()

    @property
    def numa_nodes(self) -> frozenset[int]:
        """The NUMA nodes of everything that it holds: one where it is aligned, none where it holds nothing."""
        return self.cpu_numa_nodes | self.memory_numa_nodes | self.device_numa_nodes


def socket_of(kubelet_pid: int) -> Path:
    """The socket of the kubelet with this process id: through /proc its path is short enough for a socket (unix(7))."""
    return Path(f"/proc/{kubelet_pid}/root") / layout.POD_RESOURCES.relative_to("/")


def listed(socket: Path, machine: Machine, namespace: str, pod: str) -> tuple[ContainerResources, ...] | None:
    """The containers of a pod, in the kubelet's order; None if the kubelet does not list the pod.

    Init containers are not among them, unless they are sidecars. Raises SandboxError if the kubelet does not answer.
    """
    with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.max_receive_message_length", MOST_BYTES)]) as channel:
        ask = channel.unary_unary(
            _LIST,
            request_serializer=messages.ListPodResourcesRequest.SerializeToString,
            response_deserializer=messages.ListPodResourcesResponse.FromString,
        )
        try:
            answer = ask(messages.ListPodResourcesRequest(), timeout=TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise SandboxError(f"the kubelet does not tell what its pods hold: {error}") from error
    for content in answer.pod_resources:
        if (content.namespace, content.name) == (namespace, pod):
            return tuple(_container(machine, container) for container in content.containers)
    return None


def _container(machine: Machine, content: messages.ContainerResources) -> ContainerResources:
    devices: dict[str, tuple[str, ...]] = {}
    for entry in content.devices:  # one for each device that has a place of its own
        devices[entry.resource_name] = (*devices.get(entry.resource_name, ()), *entry.device_ids)
    cpus = frozenset(map(int, content.cpu_ids))
    return ContainerResources(
        content.name,
        cpus,
        devices,
        frozenset(core.numa_node for core in machine.cores if cpus & set(members(core.threads))),
        _places(entry.topology for entry in content.memory),
        _places(entry.topology for entry in content.devices),
    )


def _places(topologies: Iterable[messages.TopologyInfo]) -> frozenset[int]:
    return frozenset(node.ID for topology in topologies for node in topology.nodes)
