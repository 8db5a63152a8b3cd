"""What is known of one node before it is drawn: its boxes, who holds each CPU and device, and where each device is."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from topomend.base.natural_order import natural_key
from topomend.model.bitmask import CPUSet, members
from topomend.model.devices.claimed_device import ContainerClaim, DeviceKey
from topomend.model.nodes.node_state import Device, NodeState
from topomend.picture.drawing.theme import HOLDER_COLOURS
from topomend.picture.holders import RESERVED, Holder, holders_of
from topomend.picture.machine.boxes import Level, boxes_of, walk
from topomend.picture.machine.memory import memory_of
from topomend.replay.admission import reserved_cpus

SEVERAL = "+"
"""The mark of what several hold."""


@dataclass(frozen=True)
class Subject:
    """What is drawn: a node's state with the whole machine, and what is known besides.

    ``claims`` are devices that containers have by resource claims, ``places`` the NUMA nodes of those that are known.
    ``going`` are the pods, as (namespace, name), that are to be marked as those that have to go. ``problem``: why the
    state cannot be relied on; empty where it can.
    """

    state: NodeState
    claims: Sequence[ContainerClaim] = ()
    places: Mapping[DeviceKey, int] = field(default_factory=dict)
    going: Collection[tuple[str, str]] = ()
    problem: str = ""


@dataclass(frozen=True)
class Look:
    """How something that is held, or not, looks: its mark, its class and who holds it in words."""

    mark: str
    css: str
    words: str


FREE = Look("", "free", "free")


class Facts:
    """The facts of one node. Its devices near no NUMA node of the machine, or near several, are at None."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.state, self.machine = subject, subject.state, subject.state.machine
        self.holders = holders_of(subject.state, subject.claims)
        self.boxes = boxes_of(self.machine)
        self.memory = memory_of(self.state, self.holders)
        self.reserved: CPUSet = reserved_cpus(self.state) or self.state.kubelet.reserved_cpus or 0
        self.taken = self.reserved
        self._css: dict[str, str] = {}
        self._of_cpu: dict[int, list[Holder]] = {}
        self._of_device: dict[tuple[str, str], list[Holder]] = {}
        self._of_claimed: dict[DeviceKey, list[Holder]] = {}
        self._ids = {node.id for node in self.machine.numa_nodes}
        for number, holder in enumerate(self.holders):
            self._add(number, holder)

    def _add(self, number: int, holder: Holder) -> None:
        self.taken |= holder.cpus
        goes = " goes" if self.is_going(holder) else ""
        self._css[holder.mark] = f"h{number % HOLDER_COLOURS}{goes}"
        for cpu in members(holder.cpus):
            self._of_cpu.setdefault(cpu, []).append(holder)
        for device in holder.devices:
            self._of_device.setdefault(device, []).append(holder)
        for claimed in holder.claimed:
            self._of_claimed.setdefault(claimed, []).append(holder)

    @property
    def size_words(self) -> str:
        """``2 packages, 4 NUMA nodes, 16 cores, 32 CPUs``."""
        counts = Counter(box.level for box in walk(self.boxes.outermost))
        kinds = (
            (counts[Level.PACKAGE], "package"),
            (len(self.machine.numa_nodes), "NUMA node"),
            (counts[Level.CORE], "core"),
            (self.machine.cpus.bit_count(), "CPU"),
        )
        return ", ".join(f"{number} {kind}{'' if number == 1 else 's'}" for number, kind in kinds)

    @property
    def description(self) -> str:
        """The node in one sentence."""
        free = (self.machine.cpus & ~self.taken).bit_count()
        holders = f"{len(self.holders)} container{'' if len(self.holders) == 1 else 's'} with exclusive resources"
        return f"Node {self.state.name}: {self.size_words}; {free} CPUs are free; {holders}. The tables say the same."

    def is_going(self, holder: Holder) -> bool:
        """Whether the holder's pod has to go."""
        return (holder.namespace, holder.pod) in self.subject.going

    def css_of(self, holder: Holder) -> str:
        """The class of the holder's colour."""
        return self._css[holder.mark]

    def of_cpu(self, cpu: int) -> Look:
        """Who holds a CPU."""
        holders = self._of_cpu.get(cpu, [])
        if len(holders) <= 1 and self.reserved >> cpu & 1:
            return Look(RESERVED, "reserved", "reserved for the system")
        return self._look(holders)

    def of_device(self, device: Device) -> Look:
        """Who holds a device of a device plugin."""
        return self._look(self._of_device.get((device.resource, device.id), []))

    def of_claimed(self, device: DeviceKey) -> Look:
        """Who has a device by a claim."""
        return self._look(self._of_claimed[device])

    def _look(self, holders: Sequence[Holder]) -> Look:
        if not holders:
            return FREE
        names = ", ".join(holder.name for holder in holders)
        if len(holders) > 1:
            return Look(SEVERAL, "several", f"shared by {names}")
        return Look(holders[0].mark, self.css_of(holders[0]), names)

    def devices_at(self, numa_node: int | None) -> list[Device]:
        """The devices of device plugins near this NUMA node alone."""
        return [device for device in self.state.devices if self._place_of(device) == numa_node]

    def _place_of(self, device: Device) -> int | None:
        places = device.numa_nodes or ()
        return places[0] if len(places) == 1 and places[0] in self._ids else None

    def claimed_at(self, numa_node: int | None) -> list[DeviceKey]:
        """The devices that containers have by claims on this NUMA node."""
        here = [device for device in self._of_claimed if self._known(device) == numa_node]
        return sorted(here, key=lambda device: (*device[:2], natural_key(device[2])))

    def _known(self, device: DeviceKey) -> int | None:
        place = self.subject.places.get(device)
        return place if place in self._ids else None
