"""Draw a node as text: one character a core, one letter a container, a line of devices, the distance matrix.

Ids are the operating system's, as the kubelet uses them. A legend explains each letter where it first appears.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from topomend.base.natural_order import natural_key
from topomend.cli.output.terminal import Style
from topomend.model.bitmask import CPUSet, format_id_list
from topomend.model.devices.claimed_device import ContainerClaim, DeviceKey
from topomend.model.machine import Core, HugePages, NUMANode
from topomend.model.nodes.node_state import NodeState
from topomend.model.quantity import format_bytes
from topomend.picture.holders import LETTERS, RESERVED, Holder, holders_of
from topomend.replay.remarks import unmodelled

FREE, SEVERAL, UNNAMED = ".", "+", "#"


_CORES, _SPACE = "  cores    ", "   "

_FIXED: Mapping[str, Style] = {
    FREE: {"fg": "green"},
    RESERVED: {"dim": True},
    SEVERAL: {"fg": "red", "bold": True},
    UNNAMED: {"bold": True},
}
_COLOURS = ("cyan", "yellow", "magenta", "blue", "bright_cyan", "bright_yellow", "bright_magenta", "bright_blue")
"""Of containers, by their letters; who sees no colour has the letters."""


def styled(line: str) -> Iterator[tuple[str, Style]]:
    """A row of cores in parts, each mark with the style of its container; nothing of any other line of a drawing."""
    if not line.startswith(_CORES):
        return
    marks, _, legend = line.removeprefix(_CORES).partition(_SPACE)
    yield _CORES, {}
    yield from (("".join(run), _style(mark)) for mark, run in groupby(marks))
    for entry in filter(None, legend.split(_SPACE)):
        yield _SPACE, {}
        yield entry[0], _style(entry[0])
        yield entry[1:], {}


def _style(mark: str) -> Style:
    if mark in _FIXED:
        return _FIXED[mark]
    return {"fg": _COLOURS[LETTERS.index(mark) % len(_COLOURS)], "bold": True} if mark in LETTERS else {}


NumaNodeOf = Callable[[str, str, str], int | None]
"""The NUMA node of the device of a driver's pool; None where it is not known."""


def nowhere(driver: str, pool: str, device: str) -> None:
    """The place of devices that nobody knows."""
    del driver, pool, device


def draw(state: NodeState, claims: Sequence[ContainerClaim] = (), numa_node_of: NumaNodeOf = nowhere) -> Iterator[str]:
    """The lines of the drawing of one node, with the devices that containers on it have by ``claims``."""
    holders = holders_of(state, claims)
    claimed = _by_place(claims, numa_node_of)
    kubelet, machine = state.kubelet, state.machine
    sizes = f"{len(machine.numa_nodes)} NUMA, {len(machine.cores)} cores, {machine.cpus.bit_count()} CPUs"
    yield (
        f"{state.name}   {kubelet.topology_manager_policy} / {kubelet.topology_manager_scope}   "
        f"cpu={kubelet.cpu_manager_policy} mem={kubelet.memory_manager_policy}   {sizes}"
    )
    explained: set[str] = set()
    for node in machine.numa_nodes:
        yield from _numa_node(state, node, holders, explained)
        yield from _claimed(claimed.pop(node.id, []), holders, explained)
    if elsewhere := [device for devices in claimed.values() for device in devices]:
        yield "NUMA node not known"
        yield from _claimed(elsewhere, holders, explained)
    yield from _distances(machine.numa_nodes)
    yield from (f"not modelled by replay: {feature}" for feature in unmodelled(state.machine, state.kubelet))


def _by_place(claims: Sequence[ContainerClaim], numa_node_of: NumaNodeOf) -> dict[int | None, list[DeviceKey]]:
    """The devices by NUMA node, each once, though containers may share it."""
    devices = sorted({(claim.driver, claim.pool, device) for claim in claims for device in claim.devices}, key=_natural)
    places: dict[int | None, list[DeviceKey]] = {}
    for device in devices:
        places.setdefault(numa_node_of(*device), []).append(device)
    return places


def _natural(device: DeviceKey) -> tuple[str, str, list[tuple[int, int, str]]]:
    driver, pool, name = device
    return driver, pool, natural_key(name)


def _claimed(devices: list[DeviceKey], holders: list[Holder], explained: set[str]) -> Iterator[str]:
    """A line for each driver."""
    for driver, its in groupby(devices, key=lambda device: device[0]):
        marks = [(device[2], _claim_mark(device, holders)) for device in its]
        row = "  ".join(f"{name} {mark}" for name, mark in marks)
        yield f"  claims   {driver}: {row}{_legend(''.join(mark for _, mark in marks), holders, explained)}"


def _claim_mark(device: DeviceKey, holders: list[Holder]) -> str:
    marks = {_letter(holder) for holder in holders if device in holder.claimed}
    return marks.pop() if len(marks) == 1 else SEVERAL


def holdings(state: NodeState, claims: Sequence[ContainerClaim] = ()) -> Iterator[str]:
    """A line for each container with allocations: its letter in the drawing, its name, and its allocations."""
    for holder in holders_of(state, claims):
        memory = " ".join(
            f"{block.resource} {format_bytes(block.size)}@{format_id_list(block.numa_nodes)}" for block in holder.memory
        )
        devices = " ".join(f"{devices.resource} {','.join(devices.ids)}" for devices in holder.allocation.devices)
        cpus = f"CPUs {format_id_list(holder.cpus)}" if holder.cpus else ""
        by_claim = " ".join(
            f"{claim.driver} {','.join(claim.devices)} by claim {claim.claim}"
            for claim in claims
            if (claim.namespace, claim.pod, claim.container) == (holder.namespace, holder.pod, holder.container)
        )
        yield "   ".join(filter(None, (f"  {_letter(holder)} {holder.name}", cpus, memory, devices, by_claim)))


def _letter(holder: Holder) -> str:
    """Its mark in the drawing, where a core is one character."""
    return holder.mark if len(holder.mark) == 1 else UNNAMED


def _numa_node(state: NodeState, node: NUMANode, holders: list[Holder], explained: set[str]) -> Iterator[str]:
    cpus = state.machine.cpus_of_numa_node.get(node.id, 0)
    taken = state.kubelet.reserved_cpus or 0
    for holder in holders:
        taken |= holder.cpus
    free = (cpus & ~taken).bit_count()
    yield (
        f"NUMA {node.id}  CPUs {format_id_list(cpus) or 'none'}   {free} of {cpus.bit_count()} free   "
        f"memory {format_bytes(node.memory)}{''.join(map(_hugepages, node.hugepages))}"
    )
    cores = [core for core in state.machine.cores if core.numa_node == node.id]
    if cores:
        marks = [(core.l3_cache, _mark(core, holders, state.kubelet.reserved_cpus or 0)) for core in cores]
        groups = ["".join(mark for _, mark in group) for _, group in groupby(marks, key=lambda mark: mark[0])]
        yield f"{_CORES}{'|'.join(groups)}{_legend(''.join(groups), holders, explained)}"
    for resource, places in groupby(
        [device for device in state.devices if device.numa_nodes and node.id in device.numa_nodes],
        key=lambda device: device.resource,
    ):
        marks_by_id = [(device.id, _device_mark(resource, device.id, holders)) for device in places]
        row = "  ".join(f"{name} {mark}" for name, mark in marks_by_id)
        yield f"  devices  {resource}: {row}{_legend(''.join(mark for _, mark in marks_by_id), holders, explained)}"


def _hugepages(pool: HugePages) -> str:
    return f"   {pool.resource} {pool.count}" if pool.count else ""


def _mark(core: Core, holders: list[Holder], reserved: CPUSet) -> str:
    marks = {_letter(holder) for holder in holders if holder.cpus & core.threads}
    if core.threads & reserved:
        marks.add(RESERVED)
    if not marks:
        return FREE
    return marks.pop() if len(marks) == 1 else SEVERAL


def _device_mark(resource: str, name: str, holders: list[Holder]) -> str:
    return next((_letter(holder) for holder in holders if (resource, name) in holder.devices), FREE)


def _legend(marks: str, holders: list[Holder], explained: set[str]) -> str:
    words = [(FREE, "free"), (RESERVED, "reserved"), (SEVERAL, "shared by several"), (UNNAMED, "allocated")]
    words += [(_letter(holder), holder.name) for holder in holders if _letter(holder) != UNNAMED]
    fresh = [(mark, word) for mark, word in words if mark in marks and mark not in explained]
    explained.update(mark for mark, _ in fresh)
    return "".join(f"{_SPACE}{mark} {word}" for mark, word in fresh)


def _distances(nodes: tuple[NUMANode, ...]) -> Iterator[str]:
    if len(nodes) < 2 or any(len(node.distances) != len(nodes) for node in nodes):
        return
    yield "distance " + "".join(f"{node.id:>5}" for node in nodes)
    for node in nodes:
        yield f"{node.id:>8} " + "".join(f"{distance:>5}" for distance in node.distances)
