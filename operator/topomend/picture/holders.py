"""Who holds something on a node, each with its mark: a letter, or two where there are more holders than letters."""

from collections.abc import Iterator, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from topomend.model.bitmask import CPUSet
from topomend.model.devices.claimed_device import ContainerClaim, DeviceKey
from topomend.model.nodes.node_state import ContainerAllocation, MemoryBlock, NodeState, PodAllocation

RESERVED = "R"
"""The mark of reserved CPUs, which no holder has."""

LETTERS = ascii_lowercase + "".join(letter for letter in ascii_uppercase if letter != RESERVED)


class Holder(NamedTuple):
    """A container with exclusive resources or devices by claims, or the part of a pod that no container has for itself.

    ``container`` is empty for the latter. ``devices`` are (resource, id), ``claimed`` those by claims.
    """

    mark: str
    namespace: str
    pod: str
    container: str
    allocation: ContainerAllocation
    claimed: frozenset[DeviceKey] = frozenset()

    @property
    def name(self) -> str:
        """``namespace/pod container``."""
        return f"{self.namespace}/{self.pod} {self.container or '(whole pod)'}"

    @property
    def cpus(self) -> CPUSet:
        """Its exclusive CPUs."""
        return self.allocation.cpus

    @property
    def memory(self) -> tuple[MemoryBlock, ...]:
        """Its memory and huge pages."""
        return self.allocation.memory

    @property
    def devices(self) -> frozenset[tuple[str, str]]:
        """The resource and the id of each of its devices."""
        return frozenset((devices.resource, name) for devices in self.allocation.devices for name in devices.ids)


def mark_of(number: int) -> str:
    """The mark of the holder of this number: ``a``, ``b``, ... ``Z``, ``aa``, ``ab``, ..."""
    more, letter = divmod(number, len(LETTERS))
    return (mark_of(more - 1) if more else "") + LETTERS[letter]


def holders_of(state: NodeState, claims: Sequence[ContainerClaim] = ()) -> list[Holder]:
    """Those with exclusive resources in the order of the node's pods, then those that have claims alone."""
    found: dict[tuple[str, str, str], Holder] = {
        (holder.namespace, holder.pod, holder.container): holder for pod in state.pods for holder in _of_pod(pod)
    }
    for claim in claims:
        key = claim.namespace, claim.pod, claim.container
        holder = found.get(key) or Holder("", *key, ContainerAllocation(claim.container))
        devices = frozenset((claim.driver, claim.pool, device) for device in claim.devices)
        found[key] = holder._replace(claimed=holder.claimed | devices)
    return [holder._replace(mark=mark_of(number)) for number, holder in enumerate(found.values())]


def _of_pod(pod: PodAllocation) -> Iterator[Holder]:
    """The containers, and what the pod holds as a whole beside them."""
    for container in pod.containers:
        if container.cpus or container.devices or container.memory:
            yield Holder("", pod.namespace, pod.name, container.name, container)
    rest = pod.cpus
    for container in pod.containers:
        rest &= ~container.cpus
    memory = () if any(container.memory for container in pod.containers) else pod.memory
    if rest or memory:
        yield Holder("", pod.namespace, pod.name, "", ContainerAllocation("", cpus=rest, memory=memory))
