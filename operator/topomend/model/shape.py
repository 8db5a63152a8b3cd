"""One-line synthetic machines: ``sockets:2 numa:2 cores:8 threads:2 memory:64Gi device:vendor.com/gpu@0=2,1=2``.

Owns the text's grammar and how Linux would number such a machine. Files for it are the sandbox's business.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from topomend.model.bitmask import mask_of
from topomend.model.machine import Core, HugePages, Machine, NUMANode
from topomend.model.node_state import Device
from topomend.model.quantity import InvalidQuantity, parse_quantity, value

DISTANCE_TO_ITSELF, DISTANCE_WITHIN_SOCKET, DISTANCE_ACROSS = 10, 12, 32

MAX_CPUS = 4096
MAX_NUMA_NODES = 64


class InvalidShape(ValueError):
    """A shape that is not of the grammar, or names a machine that cannot be."""


@dataclass(frozen=True)
class Shape:
    """The numbers of a regular machine; ``numa`` is per socket, the others are per NUMA node.

    ``devices`` are those of device plugins, ``claimable`` those of DRA drivers: counts by NUMA node, by resource.
    """

    sockets: int = 1
    numa: int = 1
    cores: int = 1
    threads: int = 1
    l3: int = 1
    memory: int = 8 << 30
    hugepages: tuple[tuple[int, int], ...] = ()
    devices: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    claimable: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()

    def machine(self) -> Machine:
        """The machine, its CPUs numbered as Linux does: the first thread of every core, then the second ones."""
        numa_count, core_count = self.sockets * self.numa, self.sockets * self.numa * self.cores
        cores = tuple(
            Core(
                threads=mask_of(core + thread * core_count for thread in range(self.threads)),
                socket=core // (self.numa * self.cores),
                numa_node=core // self.cores,
                l3_cache=core // self.cores * self.l3 + core % self.cores * self.l3 // self.cores,
            )
            for core in range(core_count)
        )
        nodes = tuple(
            NUMANode(
                id=node,
                memory=self.memory,
                hugepages=tuple(HugePages(size, count) for size, count in self.hugepages),
                distances=tuple(self._distance(node, other) for other in range(numa_count)),
            )
            for node in range(numa_count)
        )
        return Machine(nodes, cores)

    def offered_devices(self) -> tuple[Device, ...]:
        """The devices of plugins, named ``<resource's last part>-<numa>-<index>``."""
        return _named(self.devices)

    def claimable_devices(self) -> tuple[Device, ...]:
        """The devices that only claims provide (dynamic resource allocation), named alike."""
        return _named(self.claimable)

    def _distance(self, node: int, other: int) -> int:
        if node == other:
            return DISTANCE_TO_ITSELF
        return DISTANCE_WITHIN_SOCKET if node // self.numa == other // self.numa else DISTANCE_ACROSS


def _named(devices: Iterable[tuple[str, tuple[tuple[int, int], ...]]]) -> tuple[Device, ...]:
    return tuple(
        Device(resource, f"{resource.rpartition('/')[2]}-{node}-{index}", (node,))
        for resource, counts in devices
        for node, count in counts
        for index in range(count)
    )


def parse_shape(text: str) -> Shape:
    """Read a shape. Raises InvalidShape, which names the wrong word and a valid form."""
    numbers: dict[str, int] = {}
    hugepages: dict[int, int] = {}
    devices: dict[str, dict[str, tuple[tuple[int, int], ...]]] = {"device": {}, "dra": {}}
    for word in text.split():
        key, colon, rest = word.partition(":")
        if not colon or not rest:
            raise InvalidShape(f"{word[:60]!r} is not KEY:VALUE, such as numa:2")
        if key in numbers:
            raise InvalidShape(f"{key!r} is given twice")
        if key in _READERS:
            numbers[key] = _READERS[key](word, rest)
        elif key.startswith("hugepages-"):
            hugepages[_bytes(word, key.removeprefix("hugepages-"))] = _count(word, rest, least=0)
        elif key in devices:
            resource, counts = _device(word, key, rest)
            if any(resource in given for given in devices.values()):
                raise InvalidShape(f"device {resource!r} is given twice")
            devices[key][resource] = counts
        else:
            known = ", ".join([*_READERS, "hugepages-SIZE", *devices])
            raise InvalidShape(f"{key[:60]!r} is unknown; a shape has {known}")
    shape = Shape(
        **numbers,
        hugepages=tuple(sorted(hugepages.items())),
        devices=tuple(devices["device"].items()),
        claimable=tuple(devices["dra"].items()),
    )
    _check(shape)
    return shape


def _check(shape: Shape) -> None:
    numa_count = shape.sockets * shape.numa
    if numa_count > MAX_NUMA_NODES:
        raise InvalidShape(f"{numa_count} NUMA nodes; the kubelet supports at most {MAX_NUMA_NODES}")
    if numa_count * shape.cores * shape.threads > MAX_CPUS:
        raise InvalidShape(f"{numa_count * shape.cores * shape.threads} CPUs; a shape has at most {MAX_CPUS}")
    if shape.l3 > shape.cores:
        raise InvalidShape(f"l3:{shape.l3} is more than the {shape.cores} cores of a NUMA node")
    if sum(size * count for size, count in shape.hugepages) > shape.memory:
        raise InvalidShape("the huge pages are larger than the memory of a NUMA node")
    for resource, counts in (*shape.devices, *shape.claimable):
        for node, _ in counts:
            if node >= numa_count:
                raise InvalidShape(
                    f"device {resource} is on NUMA node {node}; the machine's last one is {numa_count - 1}"
                )


def _count(word: str, text: str, least: int = 1) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 7 or int(text) < least:
        raise InvalidShape(f"{word[:60]!r} needs a whole number of at least {least}")
    return int(text)


def _bytes(word: str, text: str) -> int:
    try:
        size = value(parse_quantity(text))
    except InvalidQuantity as error:
        raise InvalidShape(f"{word[:60]!r}: {error}") from error
    if size <= 0:
        raise InvalidShape(f"{word[:60]!r} needs a size above 0, such as 64Gi")
    return size


def _device(word: str, key: str, text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    resource, at, places = text.partition("@")
    domain, slash, name = resource.partition("/")
    if not (at and slash and domain and name) or "/" in name:
        raise InvalidShape(f"{word[:60]!r} is not {key}:DOMAIN/NAME@NUMA=COUNT,..., such as {key}:vendor.com/gpu@0=2")
    counts: dict[int, int] = {}
    for place in places.split(","):
        node, _, count = place.partition("=")
        counts[_count(word, node, least=0)] = _count(word, count, least=0)
    return resource, tuple(sorted(counts.items()))


_READERS: dict[str, Callable[[str, str], int]] = {
    "sockets": _count,
    "numa": _count,
    "cores": _count,
    "threads": _count,
    "l3": _count,
    "memory": _bytes,
}
