"""What the kubelet's PodResources API v1 tells over its unix socket: who holds what, and what can be held.

Owns the requests and the answers' translation. The API names pods without their uid and leaves out init containers
that are not sidecars (pkg/kubelet/apis/podresources/server_v1.go); the state files next door know those.
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
"""As large as the kubelet's own client allows (pkg/kubelet/apis/podresources/constants.go)."""

SERVICE, LIST, ALLOCATABLE = "v1.PodResourcesLister", "List", "GetAllocatableResources"
"""What is asked."""


class PodResourcesUnavailable(Exception):
    """The socket does not answer, or answers what cannot be read. The text says why, and what to do."""


@dataclass(frozen=True)
class PodResources:
    """One look: ``pods`` with their exclusive CPUs, memory and devices, all active pods included.

    ``allocatable_cpus`` are all CPUs but the reserved ones under the static policy, empty under any other.
    ``allocatable_memory`` is in bytes by NUMA node and resource, what is 0 left out; empty without a static policy.
    ``devices`` are those that are healthy now, and those that containers hold although they are not.
    """

    pods: tuple[PodAllocation, ...]
    allocatable_cpus: CPUSet
    devices: tuple[Device, ...]
    allocatable_memory: Mapping[tuple[int, str], int]


class PodResourcesClient:
    """Asks one kubelet. ``errors`` counts the methods that were not answered, or not so that it can be read."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT_SECONDS) -> None:
        self._socket, self._timeout = socket, timeout
        self._pods: Mapping[bytes, _ListedPod] = {}
        self.errors: Counter[str] = Counter()

    def read(self) -> PodResources:
        """Ask for everything. Raises PodResourcesUnavailable."""
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
                each: self._pods.get(each) or _pod(messages.PodResources.FromString(each))
                for each in messages.ListedPods.FromString(listed).pod_resources
            }
            method = ALLOCATABLE
            return _joined(self._pods.values(), messages.AllocatableResourcesResponse.FromString(allocatable))
        except DecodeError as error:
            raise self._failed(method, f"answers {method} with what is no such message") from error
        except InvalidIDList as error:
            raise self._failed(method, f"answers what cannot be: {error}") from error

    def _failed(self, method: str, what: str) -> PodResourcesUnavailable:
        self.errors[method] += 1
        return PodResourcesUnavailable(f"{self._socket} {what}")


@dataclass(frozen=True)
class _ListedPod:
    """What one pod holds, and where its devices are: by resource and id, None where the plugin names no place."""

    allocation: PodAllocation
    devices: Mapping[tuple[str, str], tuple[int, ...] | None]


def _pod(pod: messages.PodResources) -> _ListedPod:
    containers = tuple(
        ContainerAllocation(
            each.name, cpus=mask_of(each.cpu_ids), memory=_blocks(each.memory), devices=_held(each.devices)
        )
        for each in pod.containers
    )
    places = _places(device for container in pod.containers for device in container.devices)
    return _ListedPod(PodAllocation(pod.namespace, pod.name, containers=containers), places)


def _joined(pods: Iterable[_ListedPod], allocatable: messages.AllocatableResourcesResponse) -> PodResources:
    in_use: dict[tuple[str, str], tuple[int, ...] | None] = {}
    for pod in pods:
        in_use |= pod.devices
    healthy = _places(allocatable.devices)
    every = in_use | healthy
    return PodResources(
        tuple(sorted((pod.allocation for pod in pods), key=lambda pod: (pod.namespace, pod.name))),
        mask_of(allocatable.cpu_ids),
        tuple(
            Device(resource, device, every[resource, device], healthy=(resource, device) in healthy)
            for resource, device in sorted(every, key=lambda key: (key[0], natural_key(key[1])))
        ),
        {(node.ID, each.memory_type): each.size for each in allocatable.memory for node in each.topology.nodes},
    )


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
