"""Choose the pods that try one node: few, and each at a limit that the node's own policies decide.

Owns what is asked for. Whether a kubelet admits it is for replay to say: no case has an expected answer of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from topomend.decide.diagnosis.filters import too_little_left
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import Device, NodeState, allocations, free_cpus
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, is_extended, requests_of
from topomend.model.quantity import MilliQuantity, format_bytes, parse_quantity
from topomend.replay.admission import machine_state_of, reserved_cpus
from topomend.replay.container_manager import start
from topomend.replay.qos import CPU, MEMORY

MEMORY_BYTES = 32 << 20
"""What each container asks for where its memory is not what is tried."""

FRACTION = 100
"""Thousandths of a CPU: what a container of shared CPUs asks for."""

MOST_RESOURCES = 4
"""For so many resources of device plugins there are cases, which are three each."""

Amounts = Mapping[str, MilliQuantity]


@dataclass(frozen=True)
class Case:
    """One pod to try: ``name`` in lower case, unique among the cases of a node, and ``what`` it asks for in words."""

    name: str
    what: str
    containers: tuple[Container, ...]

    @property
    def pod(self) -> Pod:
        """The pod as admission reads it, without a namespace."""
        return Pod("", self.name, containers=self.containers)


@dataclass(frozen=True)
class Choice:
    """The cases for a node, and in words what is not tried there and why."""

    cases: tuple[Case, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Free:
    """What is free on the NUMA nodes: CPUs, bytes by resource of the Memory Manager, devices by resource.

    ``devices`` counts on any NUMA node, ``near`` the most near one, 0 for a resource whose devices name none.
    """

    cpus: int
    memory: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    near: Mapping[str, int] = field(default_factory=dict)


def choose(state: NodeState, node: Node, used: Amounts) -> Choice:
    """The cases for a node in this state. ``used`` is what its pods take of its totals, in thousandths by resource.

    No case asks for more than they leave: what is too much in total, no scheduler would send here.
    """
    free = _free(state)
    resources = [name for name in sorted(free.devices) if is_extended(name) and node.allocatable.get(name, 0) > 0]
    proposed = [*_of_cpus(state, free), *_of_devices(state, free, resources[:MOST_RESOURCES]), *_of_memory(state, free)]
    cases, left_out = dict[tuple[object, ...], Case](), list[str]()
    for case in proposed:
        lacking = too_little_left(node, requests_of(case.pod), used)
        if lacking:
            left_out.append(f"{case.what}: too little {lacking} is left in total")
        else:
            cases.setdefault(_asked(case), case)
    left_out += [f"{name}: {MOST_RESOURCES} resources are tried at most" for name in resources[MOST_RESOURCES:]]
    return Choice(tuple(cases.values()), tuple(left_out))


def _asked(case: Case) -> tuple[object, ...]:
    """What two cases have in common that are the same pod."""
    return tuple(
        (each.kind, tuple(sorted(each.resources.requests.items())), tuple(sorted(each.resources.limits.items())))
        for each in case.containers
    )


# CPUs


def _of_cpus(state: NodeState, free: _Free) -> Iterator[Case]:
    yield Case("shared-cpu", "a fraction of a CPU", (_container("main", {CPU: FRACTION}),))
    yield Case("one-cpu", "1 CPU", (_container("main", {CPU: 1000}),))
    if state.kubelet.cpu_manager_policy != "static":
        return
    yield Case(
        "not-guaranteed", "1 CPU without a limit", (Container("main", ContainerKind.APP, Resources({CPU: 1000})),)
    )
    yield Case(
        "beside",
        "1 CPU, and beside it a fraction of one",
        (_container("main", {CPU: 1000}), _container("shared", {CPU: FRACTION})),
    )
    yield from _whole_core(state)
    most = free.cpus
    if most > 1:
        yield Case("numa-node", f"{most} CPUs, the most free on a NUMA node", (_container("main", {CPU: most * 1000}),))
    if most and len(state.machine.numa_nodes) > 1:
        more, half = most + 1, most // 2 + 1
        yield Case(
            "beyond", f"{more} CPUs, more than any NUMA node has free", (_container("main", {CPU: more * 1000}),)
        )
        yield Case(
            "two-containers",
            f"two containers of {_cpus(half)}, together more than any NUMA node has free",
            (_container("first", {CPU: half * 1000}), _container("second", {CPU: half * 1000})),
        )
    first = min(2, max(most, 1))
    yield Case(
        "init-container",
        f"{_cpus(first)} for an init container, then 1 CPU",
        (_container("init", {CPU: first * 1000}, ContainerKind.INIT), _container("main", {CPU: 1000})),
    )
    yield Case(
        "sidecar",
        "1 CPU for a sidecar, and 1 CPU",
        (_container("sidecar", {CPU: 1000}, ContainerKind.SIDECAR), _container("main", {CPU: 1000})),
    )


def _whole_core(state: NodeState) -> Iterator[Case]:
    threads = max((core.threads.bit_count() for core in state.machine.cores), default=1)
    if threads > 1:
        what = f"{threads} CPUs, as many as a core has threads"
        yield Case("whole-core", what, (_container("main", {CPU: threads * 1000}),))


def _cpus(count: int) -> str:
    return f"{count} CPU{'s' if count != 1 else ''}"


# Devices


def _of_devices(state: NodeState, free: _Free, resources: Iterable[str]) -> Iterator[Case]:
    there = [name for name in resources if free.devices[name]]
    several = len(state.machine.numa_nodes) > 1
    for number, name in enumerate(there, start=1):
        one, near = {name: 1000}, free.near[name]
        yield Case(f"device-{number}", f"1 {name}", (_container("main", {CPU: FRACTION, **one}),))
        yield Case(f"device-{number}-cpu", f"1 {name} with 1 CPU", (_container("main", {CPU: 1000, **one}),))
        if several and near and near < free.devices[name]:
            more = {name: (near + 1) * 1000}
            what = f"{near + 1} {name}, more than are free near one NUMA node, with 1 CPU"
            yield Case(f"device-{number}-beyond", what, (_container("main", {CPU: 1000, **more}),))
    if len(there) > 1:
        what = f"1 of each of {', '.join(there)}, with 1 CPU"
        yield Case("devices", what, (_container("main", {CPU: 1000, **dict.fromkeys(there, 1000)}),))


# Memory


def _of_memory(state: NodeState, free: _Free) -> Iterator[Case]:
    """Cases for the static Memory Manager, on which alone ``free.memory`` has anything."""
    most = free.memory.get(MEMORY, 0)
    if most:
        what = f"{format_bytes(most)} memory, the most free on a NUMA node, with 1 CPU"
        yield Case("memory", what, (_container("main", {CPU: 1000, MEMORY: most * 1000}),))
    if most and len(state.machine.numa_nodes) > 1:
        what = f"1Mi more memory than any NUMA node has free ({format_bytes(most)}), with 1 CPU"
        yield Case("memory-beyond", what, (_container("main", {CPU: 1000, MEMORY: (most + (1 << 20)) * 1000}),))
    pages = [name for name, size in sorted(free.memory.items()) if name != MEMORY and size]
    for number, name in enumerate(pages, start=1):
        size = _page_bytes(name)
        yield Case(f"huge-pages-{number}", f"1 page of {name}, with 1 CPU", (_pages(name, size),))
        if len(state.machine.numa_nodes) > 1:
            more = free.memory[name] + size
            what = f"1 page of {name} more than any NUMA node has free, with 1 CPU"
            yield Case(f"huge-pages-{number}-beyond", what, (_pages(name, more),))


def _pages(name: str, size: int) -> Container:
    return _container("main", {CPU: 1000, name: size * 1000})


# Amounts


def _container(name: str, limits: Amounts, kind: ContainerKind = ContainerKind.APP) -> Container:
    """A container whose requests are its limits, memory among them, so that its pod is Guaranteed."""
    amounts = {MEMORY: MEMORY_BYTES * 1000, **limits}
    return Container(name, kind, Resources(amounts, amounts))


def _free(state: NodeState) -> _Free:
    cpus = max(free_cpus(state, reserved_cpus(state)).values(), default=0)
    devices = free_devices(state)
    counts = {each.resource: 0 for each in state.devices} | Counter(device.resource for device in devices)
    return _Free(cpus, _free_memory(state), counts, {name: _most_near_one(state, devices, name) for name in counts})


def free_devices(state: NodeState) -> list[Device]:
    """The healthy devices that no container has."""
    taken = {(each.resource, name) for own in allocations(state.pods) for each in own.devices for name in each.ids}
    return [device for device in state.devices if device.healthy and (device.resource, device.id) not in taken]


def _most_near_one(state: NodeState, free: Iterable[Device], resource: str) -> int:
    near = Counter(node for device in free if device.resource == resource for node in device.numa_nodes or ())
    return max((near[node.id] for node in state.machine.numa_nodes), default=0)


def _free_memory(state: NodeState) -> dict[str, int]:
    """The most bytes that are free on a NUMA node, by resource; nothing where the Memory Manager pins nothing."""
    kubelet = start(state.machine, state.kubelet)
    if isinstance(kubelet, str) or kubelet.memory is None:
        return {}
    most = dict[str, int]()
    for node in machine_state_of(kubelet.memory, state).nodes.values():
        for resource, size in node.free.items():
            most[resource] = max(most.get(resource, 0), size)
    return most


def _page_bytes(resource: str) -> int:
    """The size of a page of ``hugepages-2Mi`` and its likes."""
    return parse_quantity(resource.removeprefix("hugepages-")) // 1000
