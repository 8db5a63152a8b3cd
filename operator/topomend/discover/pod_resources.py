"""The kubelet's PodResources API v1 on its unix socket: allocated and allocatable resources.

Owns the requests and the translation of the answers. The API names pods without their uid and omits init containers
that are not sidecars (pkg/kubelet/apis/podresources/server_v1.go); ``state_files`` has both. gRPC itself is left to
``grpc_unix``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from topomend.discover import podresources_pb2 as messages
from topomend.discover.grpc_unix import CallFailed, call_all
from topomend.model.bitmask import MAX_ID, CPUSet, InvalidIDList, mask_of
from topomend.model.node_state import ContainerAllocation, Device, DeviceAllocation, MemoryBlock, PodAllocation
from topomend.replay.devices.manager import natural_key

TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 16 << 20
"""The limit of the kubelet's own client (pkg/kubelet/apis/podresources/constants.go)."""

SERVICE, LIST, ALLOCATABLE = "v1.PodResourcesLister", "List", "GetAllocatableResources"
"""The service and the methods that are called."""


class PodResourcesUnavailable(Exception):
    """The socket does not answer, or its answer cannot be read. The text says why, and what to do."""


@dataclass(frozen=True)
class PodResources:
    """The answers of one moment. ``pods`` are all active pods with their exclusive CPUs, memory and devices.

    ``allocatable_cpus`` are all CPUs but the reserved ones under the static policy, empty under any other.
    ``allocatable_memory`` is in bytes by NUMA node and resource, without zeros; empty unless the policy is Static.
    ``devices`` are the healthy devices, and unhealthy ones that are still allocated to containers.
    """

    pods: tuple[PodAllocation, ...]
    allocatable_cpus: CPUSet
    devices: tuple[Device, ...]
    allocatable_memory: Mapping[tuple[int, str], int]


class PodResourcesClient:
    """Queries one kubelet. ``errors`` counts failed requests and unreadable answers by method."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT_SECONDS) -> None:
        self._socket, self._timeout = socket, timeout
        self._pods: Mapping[bytes, _ListedPod] = {}
        self.errors: Counter[str] = Counter()

    def read(self) -> PodResources:
        """Call both methods once. Raises PodResourcesUnavailable."""
        if not self._socket.exists():
            raise self._failed(
                LIST,
                "is not there: is the kubelet running, and is this its socket? With another --root-dir it is there "
                "(docs/layouts.md)",
            )
        try:
            listed, allocatable = call_all(
                self._socket.absolute(), SERVICE, (LIST, ALLOCATABLE), self._timeout, MAX_ANSWER_BYTES
            )
        except CallFailed as error:
            raise self._failed(error.method, f"does not answer: {error}") from error
        method = LIST
        try:
            self._pods = {
                content: self._pods.get(content) or _pod(messages.PodResources.FromString(content))
                for content in messages.ListedPods.FromString(listed).pod_resources
            }
            method = ALLOCATABLE
            return _joined(self._pods.values(), messages.AllocatableResourcesResponse.FromString(allocatable))
        except DecodeError as error:
            raise self._failed(method, f"answers {method} with an invalid message") from error
        except InvalidIDList as error:
            raise self._failed(method, f"gives an impossible answer: {error}") from error

    def _failed(self, method: str, what: str) -> PodResourcesUnavailable:
        self.errors[method] += 1
        return PodResourcesUnavailable(f"{self._socket} {what}")


@dataclass(frozen=True)
class _ListedPod:
    """One pod's allocation, and the NUMA nodes of its devices by resource and id, None if the plugin names none."""

    allocation: PodAllocation
    devices: Mapping[tuple[str, str], tuple[int, ...] | None]


def _pod(pod: messages.PodResources) -> _ListedPod:
    containers = tuple(
        ContainerAllocation(
            container.name,
            cpus=mask_of(container.cpu_ids),
            memory=_blocks(container.memory),
            devices=_device_allocations(container.devices),
        )
        for container in pod.containers
    )
    numa_nodes = _numa_nodes_of_devices(device for container in pod.containers for device in container.devices)
    return _ListedPod(PodAllocation(pod.namespace, pod.name, containers=containers), numa_nodes)


def _joined(pods: Iterable[_ListedPod], allocatable: messages.AllocatableResourcesResponse) -> PodResources:
    in_use: dict[tuple[str, str], tuple[int, ...] | None] = {}
    for pod in pods:
        in_use |= pod.devices
    healthy = _numa_nodes_of_devices(allocatable.devices)
    numa_nodes = in_use | healthy
    return PodResources(
        tuple(sorted((pod.allocation for pod in pods), key=lambda pod: (pod.namespace, pod.name))),
        mask_of(allocatable.cpu_ids),
        tuple(
            Device(resource, device, numa_nodes[resource, device], healthy=(resource, device) in healthy)
            for resource, device in sorted(numa_nodes, key=lambda key: (key[0], natural_key(key[1])))
        ),
        {(node.ID, memory.memory_type): memory.size for memory in allocatable.memory for node in memory.topology.nodes},
    )


def _blocks(memory: Iterable[messages.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    blocks = (
        MemoryBlock(part.memory_type, mask_of(node.ID for node in part.topology.nodes), part.size) for part in memory
    )
    return tuple(sorted(blocks, key=lambda block: (block.resource, block.numa_nodes, block.size)))


def _device_allocations(devices: Iterable[messages.ContainerDevices]) -> tuple[DeviceAllocation, ...]:
    """Device ids by resource. The API lists a device on several NUMA nodes once for each node; this joins them."""
    ids: dict[str, dict[str, None]] = {}
    for entry in devices:
        ids.setdefault(entry.resource_name, {}).update(dict.fromkeys(entry.device_ids))
    return tuple(
        DeviceAllocation(name, tuple(sorted(unique_ids, key=natural_key))) for name, unique_ids in sorted(ids.items())
    )


def _numa_nodes_of_devices(
    devices: Iterable[messages.ContainerDevices],
) -> dict[tuple[str, str], tuple[int, ...] | None]:
    """The NUMA nodes of each device by resource and id; None if its plugin names none."""
    nodes_by_device: dict[tuple[str, str], tuple[int, ...] | None] = {}
    for entry in devices:
        nodes = tuple(_numa_node(node.ID) for node in entry.topology.nodes) if entry.HasField("topology") else None
        for device in entry.device_ids:
            earlier = nodes_by_device.get((entry.resource_name, device))
            nodes_by_device[entry.resource_name, device] = (
                nodes if earlier is None else tuple(sorted({*earlier, *(nodes or ())}))
            )
    return nodes_by_device


def _numa_node(number: int) -> int:
    """The id, or -1 for one that no NUMA node can have: nothing can be aligned with such a device."""
    return number if 0 <= number < MAX_ID else -1
