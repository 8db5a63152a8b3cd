"""The kubelet's PodResources API v1 on its unix socket: allocated and allocatable resources.

Owns the requests and the translation of the answers. The API names pods without their uid and omits init containers
that are not sidecars (pkg/kubelet/apis/podresources/server_v1.go); ``state_files`` has both. gRPC itself is left to
``grpc_unix``, the devices of claims to ``listed_claims``.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from topomend.base.natural_order import natural_key
from topomend.discover import podresources_pb2 as messages
from topomend.discover.host_files import is_absent
from topomend.discover.pod_resources.grpc_unix import CallFailed, call_all
from topomend.discover.pod_resources.listed_claims import ListedClaims, joined_claims, read_claims
from topomend.model.bitmask import MAX_ID, CPUSet, InvalidIDList, mask_of
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.nodes.node_state import ContainerAllocation, Device, DeviceAllocation, MemoryBlock, PodAllocation

TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 1 << 20
"""The longest answer that is read. Two bytes may be a message that takes seventy decoded, and the agent has 128 MiB.

Four thousand devices with long names take 0.4 MiB, a thousand pods less. The limit of the kubelet's own client is 16
MiB (pkg/kubelet/apis/podresources/constants.go).
"""

MAX_PODS, MAX_ENTRIES = 5_000, 50_000
"""Pods in an answer, and all that is named in it: containers, devices, their NUMA nodes, memory blocks, CPUs.

An object for each of them takes far more than its bytes.
"""

SERVICE, LIST, ALLOCATABLE = "v1.PodResourcesLister", "List", "GetAllocatableResources"
"""The service and the methods that are called."""


class PodResourcesUnavailable(Exception):
    """The socket does not answer, or its answer cannot be read. The text says why, and what to do."""


@dataclass(frozen=True)
class PodResources:
    """The answers of one moment. ``pods`` are all active pods with their exclusive CPUs, memory and devices.

    ``allocatable_cpus`` are all CPUs but the reserved ones under the static policy, empty under any other.
    ``allocatable_memory`` is in bytes by NUMA node and resource, without zeros; empty unless the policy is Static.
    ``devices`` are the healthy devices, and unhealthy ones that are still allocated to containers. ``claims`` are the
    devices that containers have by resource claims, and ``omitted`` says in words which are left out.
    """

    pods: tuple[PodAllocation, ...]
    allocatable_cpus: CPUSet
    devices: tuple[Device, ...]
    allocatable_memory: Mapping[tuple[int, str], int]
    claims: tuple[ContainerClaim, ...] = ()
    omitted: str = ""


class _TooMany(Exception):
    """An answer names more than any kubelet has."""


class _Budget:
    """How much one kubelet's answers may still name."""

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, *lengths: int) -> None:
        """Count so many entries, before there is an object for each. Raises _TooMany."""
        self.spent += sum(lengths)
        if self.spent > MAX_ENTRIES:
            raise _TooMany(f"more than {MAX_ENTRIES} containers, devices, NUMA nodes, memory blocks and CPUs")


class PodResourcesClient:
    """Queries one kubelet. ``errors`` counts failed requests and unreadable answers by method."""

    def __init__(self, socket: Path, timeout: float = TIMEOUT_SECONDS) -> None:
        self._socket, self._timeout = socket, timeout
        self._pods: Mapping[bytes, _ListedPod] = {}
        self.errors: Counter[str] = Counter()

    def read(self) -> PodResources:
        """Call both methods once. Raises PodResourcesUnavailable."""
        if is_absent(self._socket):
            raise self._failed(
                LIST,
                "is not there: is the kubelet running, and is this its socket? With another --root-dir it is there "
                "(docs/run/layouts.md)",
            )
        try:
            listed, allocatable = call_all(
                self._socket.absolute(), SERVICE, (LIST, ALLOCATABLE), self._timeout, MAX_ANSWER_BYTES
            )
        except CallFailed as error:
            raise self._failed(error.method, f"does not answer: {error}") from error
        method = LIST
        try:
            budget = _Budget()
            self._pods = self._read_pods(messages.ListedPods.FromString(listed).pod_resources, budget)
            method = ALLOCATABLE
            return _joined(
                list(self._pods.values()), messages.AllocatableResourcesResponse.FromString(allocatable), budget
            )
        except DecodeError as error:
            raise self._failed(method, f"answers {method} with an invalid message") from error
        except (InvalidIDList, _TooMany) as error:
            raise self._failed(method, f"gives an impossible answer: {error}") from error

    def _read_pods(self, listed: Collection[bytes], budget: _Budget) -> "dict[bytes, _ListedPod]":
        if len(listed) > MAX_PODS:
            raise _TooMany(f"more than {MAX_PODS} pods")
        pods = dict[bytes, _ListedPod]()
        for content in listed:
            if known := self._pods.get(content):
                budget.spend(known.entries)
                pods[content] = known
            else:
                pods[content] = _pod(messages.PodResources.FromString(content), budget)
        return pods

    def _failed(self, method: str, problem: str) -> PodResourcesUnavailable:
        self.errors[method] += 1
        return PodResourcesUnavailable(f"{self._socket} {problem}")


@dataclass(frozen=True)
class _ListedPod:
    """One pod's allocation, and the NUMA nodes of its devices by resource and id, None if the plugin names none.

    ``entries`` counts what the answer names for it. ``claims`` are the devices that its containers have by claims.
    """

    entries: int
    allocation: PodAllocation
    devices: Mapping[tuple[str, str], tuple[int, ...] | None]
    claims: ListedClaims


def _pod(pod: messages.PodResources, budget: _Budget) -> _ListedPod:
    before = budget.spent
    budget.spend(len(pod.containers), len(pod.cpu_ids))
    _spend_on_memory(pod.memory, budget)
    for container in pod.containers:
        budget.spend(len(container.cpu_ids))
        _spend_on_memory(container.memory, budget)
        _spend_on_devices(container.devices, budget)
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
    allocation = PodAllocation(
        pod.namespace, pod.name, containers=containers, cpus=mask_of(pod.cpu_ids), memory=_blocks(pod.memory)
    )
    return _ListedPod(budget.spent - before, allocation, numa_nodes, read_claims(pod))


def _spend_on_memory(memory: Collection[messages.ContainerMemory], budget: _Budget) -> None:
    budget.spend(len(memory))
    for part in memory:
        budget.spend(len(part.topology.nodes))


def _spend_on_devices(devices: Collection[messages.ContainerDevices], budget: _Budget) -> None:
    budget.spend(len(devices))
    for entry in devices:
        budget.spend(len(entry.device_ids), len(entry.topology.nodes))


def _joined(
    pods: Collection[_ListedPod], allocatable: messages.AllocatableResourcesResponse, budget: _Budget
) -> PodResources:
    budget.spend(len(allocatable.cpu_ids))
    _spend_on_memory(allocatable.memory, budget)
    _spend_on_devices(allocatable.devices, budget)
    in_use: dict[tuple[str, str], tuple[int, ...] | None] = {}
    for pod in pods:
        in_use |= pod.devices
    healthy = _numa_nodes_of_devices(allocatable.devices)
    numa_nodes = in_use | healthy
    claims = joined_claims([pod.claims for pod in pods])
    return PodResources(
        tuple(sorted((pod.allocation for pod in pods), key=lambda pod: (pod.namespace, pod.name))),
        mask_of(allocatable.cpu_ids),
        tuple(
            Device(resource, device, numa_nodes[resource, device], healthy=(resource, device) in healthy)
            for resource, device in sorted(numa_nodes, key=lambda key: (key[0], natural_key(key[1])))
        ),
        {(node.ID, memory.memory_type): memory.size for memory in allocatable.memory for node in memory.topology.nodes},
        claims.claims,
        claims.remark,
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
