"""What the kubelet's PodResources API v1 tells over its unix socket: who holds what, and what can be held.

Owns the gRPC client and the answers' translation. The API names pods without their uid and leaves out init containers
that are not sidecars (pkg/kubelet/apis/podresources/server_v1.go); the state files next door know those.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from topomend.discover import podresources_pb2 as messages
from topomend.discover.podresources_pb2_grpc import PodResourcesListerStub
from topomend.model.bitmask import MAX_ID, CPUSet, InvalidIDList, mask_of
from topomend.model.node_state import ContainerAllocation, Device, DeviceAllocation, MemoryBlock, PodAllocation
from topomend.replay.devices.manager import natural_key

TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 16 << 20
"""As large as the kubelet's own client allows (pkg/kubelet/apis/podresources/constants.go)."""


class PodResourcesUnavailable(Exception):
    """The socket does not answer, or answers what cannot be read. The text says why, and what to do."""


@dataclass(frozen=True)
class PodResources:
    """One look: ``pods`` with their exclusive CPUs, memory and devices, all active pods included.

    ``allocatable_cpus`` are all CPUs but the reserved ones under the static policy, empty under any other.
    ``devices`` are those that are healthy now, and those that containers hold although they are not.
    """

    pods: tuple[PodAllocation, ...]
    allocatable_cpus: CPUSet
    devices: tuple[Device, ...]


class PodResourcesClient:
    """A connection to one kubelet, made anew by gRPC whenever the kubelet comes back."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT_SECONDS) -> None:
        self._socket, self._timeout = socket, timeout
        options = [
            ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 500),
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.enable_http_proxy", 0),
        ]
        self._channel = grpc.insecure_channel(f"unix:{socket.absolute()}", options=options)
        self._stub = PodResourcesListerStub(self._channel)

    def read(self) -> PodResources:
        """Ask for everything. Raises PodResourcesUnavailable."""
        if not self._socket.exists():
            raise PodResourcesUnavailable(
                f"{self._socket} is not there: is the kubelet running, and is this its socket?"
            )
        try:
            listed = self._stub.List(messages.ListPodResourcesRequest(), timeout=self._timeout)
            allocatable = self._stub.GetAllocatableResources(
                messages.AllocatableResourcesRequest(), timeout=self._timeout
            )
        except grpc.RpcError as error:
            raise PodResourcesUnavailable(f"{self._socket} does not answer: {_words(error)}") from error
        try:
            return _read(listed, allocatable)
        except InvalidIDList as error:
            raise PodResourcesUnavailable(f"{self._socket} answers what cannot be: {error}") from error

    def close(self) -> None:
        """End the connection."""
        self._channel.close()


def _words(error: grpc.RpcError) -> str:
    if not isinstance(error, grpc.Call):
        return str(error)[:160]
    return f"{error.code().name}: {' '.join((error.details() or '').split())[:160]}"


def _read(
    listed: messages.ListPodResourcesResponse, allocatable: messages.AllocatableResourcesResponse
) -> PodResources:
    pods = tuple(
        PodAllocation(
            pod.namespace,
            pod.name,
            containers=tuple(
                ContainerAllocation(
                    each.name, cpus=mask_of(each.cpu_ids), memory=_blocks(each.memory), devices=_held(each.devices)
                )
                for each in pod.containers
            ),
        )
        for pod in sorted(listed.pod_resources, key=lambda pod: (pod.namespace, pod.name))
    )
    in_use = [each for pod in listed.pod_resources for container in pod.containers for each in container.devices]
    return PodResources(pods, mask_of(allocatable.cpu_ids), _devices(allocatable.devices, in_use))


def _blocks(memory: Iterable[messages.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    blocks = (
        MemoryBlock(each.memory_type, mask_of(node.ID for node in each.topology.nodes), each.size) for each in memory
    )
    return tuple(sorted(blocks, key=lambda block: (block.resource, block.numa_nodes, block.size)))


def _held(devices: Iterable[messages.ContainerDevices]) -> tuple[DeviceAllocation, ...]:
    """Device ids by resource; a device on several NUMA nodes is listed once for each."""
    ids: dict[str, dict[str, None]] = {}
    for each in devices:
        ids.setdefault(each.resource_name, {}).update(dict.fromkeys(each.device_ids))
    return tuple(DeviceAllocation(name, tuple(sorted(held, key=natural_key))) for name, held in sorted(ids.items()))


def _devices(
    healthy: Sequence[messages.ContainerDevices], in_use: Sequence[messages.ContainerDevices]
) -> tuple[Device, ...]:
    places = _places(healthy)
    every = _places(in_use) | places
    return tuple(
        Device(resource, device, every[resource, device], healthy=(resource, device) in places)
        for resource, device in sorted(every, key=lambda key: (key[0], natural_key(key[1])))
    )


def _places(devices: Iterable[messages.ContainerDevices]) -> dict[tuple[str, str], tuple[int, ...] | None]:
    """The NUMA nodes of each device by resource and id; None where its plugin names none."""
    places: dict[tuple[str, str], tuple[int, ...] | None] = {}
    for each in devices:
        nodes = tuple(_numa_node(node.ID) for node in each.topology.nodes) if each.HasField("topology") else None
        for device in each.device_ids:
            known = places.get((each.resource_name, device))
            places[each.resource_name, device] = nodes if known is None else tuple(sorted({*known, *(nodes or ())}))
    return places


def _numa_node(number: int) -> int:
    """Ids that no NUMA node can have are all one: nothing can be aligned with them."""
    return number if 0 <= number < MAX_ID else -1
