"""TM2xx of kubelets and device plugins: which of their settings do not do what people expect of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from topomend.check.check import check
from topomend.check.facts import Facts, Part
from topomend.check.finding import Found, Severity, node
from topomend.explain.trace_text import numa_text
from topomend.model.bitmask import format_id_list, mask_of
from topomend.model.condition import WOULD_NOT_START_AGAIN
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState, emptied
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources
from topomend.model.quantity import format_bytes, value
from topomend.replay.admission import admit, reserved_cpus
from topomend.replay.container_manager import start
from topomend.replay.errors import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG
from topomend.replay.remarks import unmodelled
from topomend.replay.topology.policy_names import BEST_EFFORT, NONE
from topomend.replay.topology.walk_time import MAX_LISTED_NODES, is_too_long

STATIC, STATIC_MEMORY = "static", "Static"
READY = "Ready"
MASK_BITS = 64
"""How many NUMA nodes the kubelet's masks hold (topologymanager/bitmask/bitmask.go)."""

RESTART = "correct the kubelet's configuration, and restart it"


def _states(facts: Facts) -> Iterator[tuple[str, NodeState]]:
    """The nodes whose published state can be relied on, by name."""
    for name in sorted(facts.snapshot.nodes):
        publication = facts.snapshot.publications.get(name)
        if publication and not publication.problem:
            yield name, publication.state


def is_static(settings: KubeletSettings) -> bool:
    """Whether the CPU Manager gives containers CPUs of their own."""
    return settings.cpu_manager_policy == STATIC


def has_choice(state: NodeState) -> bool:
    """Whether the machine has several NUMA nodes with CPUs, so that a container can be on the wrong one."""
    return len(state.machine.cpus_of_numa_node) > 1


@check(
    "TM208",
    Severity.ERROR,
    "A kubelet would not start again",
    Part.NODES,
    Part.TOPOLOGIES,
    why="It runs well until its next restart, and then not at all.",
    cure="Drain the node, stop the kubelet, delete the file that the message names, and start it.",
)
def kubelets_would_restart(facts: Facts) -> Iterator[Found]:
    """One of the kubelet's state files has contents with which a kubelet of its release refuses to start."""
    for name in sorted(facts.snapshot.nodes):
        published = facts.published.get(name)
        for condition in published.conditions if published else ():
            if condition.reason == WOULD_NOT_START_AGAIN and condition.type != READY:
                yield Found(node(name), condition.message, "drain the node, stop the kubelet, delete that file")


@check(
    "TM209",
    Severity.ERROR,
    "No kubelet starts with the published settings",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The kubelet was started with others, or fails at its next start.",
    cure="Correct the kubelet's configuration. The message is the kubelet's own.",
)
def settings_start(facts: Facts) -> Iterator[Found]:
    """By replay a kubelet with these settings refuses to start on this machine."""
    for name, state in _states(facts):
        error = start(state.machine, state.kubelet)
        if isinstance(error, str) and not _lacks_reserved_cpus(state.kubelet):
            yield Found(node(name), f"a kubelet with its settings does not start: {error}", RESTART)


@check(
    "TM210",
    Severity.ERROR,
    "Static CPU Manager without reserved CPUs",
    Part.NODES,
    Part.TOPOLOGIES,
    why="A kubelet with the static policy and no reservation of CPUs does not start.",
    cure="Set `reservedSystemCPUs`, or `kubeReserved` or `systemReserved` with `cpu`.",
)
def cpus_are_reserved(facts: Facts) -> Iterator[Found]:
    """The CPU Manager's policy is static, and no CPU is reserved for the system."""
    for name, state in _states(facts):
        if _lacks_reserved_cpus(state.kubelet):
            message = "its CPU Manager is static and no CPU is reserved, with which no kubelet starts"
            yield Found(node(name), message, "set reservedSystemCPUs in the kubelet's configuration")


def _lacks_reserved_cpus(settings: KubeletSettings) -> bool:
    return is_static(settings) and not settings.reserved_cpus and settings.reserved_cpu_millis <= 0


@check(
    "TM211",
    Severity.WARNING,
    "Reserved CPUs take a whole NUMA node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="No container can be aligned on that NUMA node: its memory and its devices serve only pods that span others.",
    cure="Spread `reservedSystemCPUs` over the NUMA nodes, or reserve fewer.",
)
def reserved_cpus_leave_some(facts: Facts) -> Iterator[Found]:
    """Every CPU of a NUMA node is reserved for the system, while other NUMA nodes have free ones.

    Where each NUMA node has one core, nothing less can be reserved, and this is not reported.
    """
    for name, state in _states(facts):
        reserved = reserved_cpus(state)
        taken = [number for number, cpus in state.machine.cpus_of_numa_node.items() if cpus and not cpus & ~reserved]
        cores = Counter(core.numa_node for core in state.machine.cores)
        if taken and has_choice(state) and max(cores.values()) > 1:
            message = f"its reserved CPUs {format_id_list(reserved)} take all of {numa_text(mask_of(taken))}"
            yield Found(node(name), message, "spread reservedSystemCPUs over the NUMA nodes")


@check(
    "TM212",
    Severity.WARNING,
    "Reserved CPUs lie beside the accelerators",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The accelerators' own NUMA node has few CPUs left for the pods that use them, and another has many.",
    cure="Take `reservedSystemCPUs` from a NUMA node without accelerators.",
)
def reserved_cpus_spare_accelerators(facts: Facts) -> Iterator[Found]:
    """At least half of the CPUs of a NUMA node with accelerators are reserved, while one without keeps its own."""
    for name, state in _states(facts):
        published = facts.published.get(name)
        if not published or not has_choice(state):
            continue
        reserved, beside = reserved_cpus(state), set(published.accelerators)
        for number, cpus in state.machine.cpus_of_numa_node.items():
            taken = (cpus & reserved).bit_count()
            spare = [
                other
                for other, its in state.machine.cpus_of_numa_node.items()
                if other not in beside and not its & reserved
            ]
            if number in beside and spare and cpus & ~reserved and 2 * taken >= cpus.bit_count():
                message = (
                    f"{taken} of {cpus.bit_count()} CPUs of NUMA {number}, where its accelerators are, are reserved, "
                    f"and none of NUMA {spare[0]}"
                )
                yield Found(node(name), message, f"take reservedSystemCPUs from NUMA {spare[0]}")


@check(
    "TM213",
    Severity.INFO,
    "Pods are aligned by luck alone",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The kubelet prefers one NUMA node and takes several where none has room: a pod may be slow, and none is told.",
    cure="Use single-numa-node or restricted, or have pods ask by the annotation topomend.io/alignment.",
)
def alignment_is_kept(facts: Facts) -> Iterator[Found]:
    """The CPU Manager is static on a machine of several NUMA nodes, and the Topology Manager refuses nothing."""
    for name, state in _states(facts):
        policy = state.kubelet.topology_manager_policy
        if is_static(state.kubelet) and has_choice(state) and policy in (NONE, BEST_EFFORT):
            message = f"its CPU Manager is static and its Topology Manager {policy}: containers may span NUMA nodes"
            yield Found(node(name), message, "annotate pods with topomend.io/alignment=single-numa-node")


@check(
    "TM214",
    Severity.WARNING,
    "A device plugin names no NUMA node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The kubelet aligns such devices with nothing: a pod is admitted with a device of any NUMA node.",
    cure="Update the device plugin, or switch its topology on: it must fill TopologyInfo.",
)
def devices_have_numa_nodes(facts: Facts) -> Iterator[Found]:
    """All devices of a resource lack a NUMA node, on a node whose Topology Manager aligns.

    A resource with more devices than the machine has PCI functions is left out: its devices are no hardware.
    """
    for name, state in _states(facts):
        if state.kubelet.topology_manager_policy == NONE or not has_choice(state):
            continue
        published = facts.published.get(name)
        functions = published.functions if published else 0
        total = Counter(device.resource for device in state.devices)
        placed = {device.resource for device in state.devices if device.numa_nodes}
        for resource, count in sorted(total.items()):
            if resource not in placed and (not functions or count <= functions):
                message = f"the plugin of {resource} names no NUMA node for its devices, so nothing aligns them"
                yield Found(node(name), message, f"update or configure the device plugin of {resource}")


@check(
    "TM215",
    Severity.WARNING,
    "A device plugin names a wrong NUMA node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The kubelet aligns CPUs and memory with a NUMA node on which the device is not, or refuses every pod.",
    cure="Update the device plugin. Where sysfs has -1, the firmware names no NUMA node: set it there.",
)
def devices_are_where_sysfs_has_them(facts: Facts) -> Iterator[Found]:
    """A device is reported on a NUMA node that the machine lacks, or on another one than its PCI function in sysfs."""
    for name, state in _states(facts):
        published = facts.published.get(name)
        known = published.numa_node_of if published else {}
        numa_nodes = {numa_node.id for numa_node in state.machine.numa_nodes}
        wrong = defaultdict[str, list[str]](list)
        for device in state.devices:
            fault = _misplaced(device.numa_nodes, numa_nodes, known.get(device.id))
            if fault:
                wrong[device.resource].append(f"{device.id} {fault}")
        for resource, faults in sorted(wrong.items()):
            more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
            message = f"the plugin of {resource} reports {faults[0]}{more}"
            yield Found(node(name), message, f"update or configure the device plugin of {resource}")


def _misplaced(reported: tuple[int, ...] | None, existing: Iterable[int], by_sysfs: int | None) -> str:
    if not reported:
        return ""
    if not set(reported) & set(existing):
        return f"on NUMA {reported[0]}, which the machine does not have"
    if by_sysfs is not None and by_sysfs not in reported:
        return f"on NUMA {reported[0]}, while sysfs has it on NUMA {by_sysfs}"
    return ""


@check(
    "TM216",
    Severity.WARNING,
    "Reserved memory does not add up",
    Part.NODES,
    Part.TOPOLOGIES,
    why="A kubelet with a static Memory Manager starts only if both are equal to the byte.",
    cure="Make `reservedMemory` the sum of kubeReserved, systemReserved and evictionHard of memory.",
)
def reserved_memory_adds_up(facts: Facts) -> Iterator[Found]:
    """The memory reserved on NUMA nodes is not what the Node keeps from its pods."""
    for name, state in _states(facts):
        if state.kubelet.memory_manager_policy != STATIC_MEMORY:
            continue
        reserved = sum(each.size for each in state.kubelet.reserved_memory if each.resource == "memory")
        kept = _kept_from_pods(facts, name)
        if kept is not None and kept != reserved:
            message = f"its reservedMemory is {reserved} bytes, while its Node keeps {kept} bytes from pods"
            yield Found(node(name), message, f"make reservedMemory {format_bytes(kept)} in all, to the byte")


def _kept_from_pods(facts: Facts, name: str) -> int | None:
    """What the Node's allocatable memory is less than its capacity, but for huge pages
    (pkg/kubelet/nodestatus/setters.go:MachineInfo); None where it has not posted them."""
    its = facts.snapshot.nodes[name]
    if "memory" not in its.capacity or "memory" not in its.allocatable:
        return None
    pages = sum(value(amount) for resource, amount in its.capacity.items() if resource.startswith("hugepages-"))
    return value(its.capacity["memory"]) - value(its.allocatable["memory"]) - pages


@check(
    "TM217",
    Severity.ERROR,
    "An admission would hang or crash the kubelet",
    Part.NODES,
    Part.TOPOLOGIES,
    why="One pod that asks for every resource stops the kubelet for hours: it admits no other meanwhile.",
    cure="Use single-numa-node against a hang, none against a crash, or have the firmware show fewer NUMA nodes.",
)
def kubelets_would_answer(facts: Facts) -> Iterator[Found]:
    """By replay a small Guaranteed pod that asks for one of each of the node's devices hangs or crashes the kubelet."""
    known: dict[tuple[int, int, tuple[str, ...]], str] = {}
    for name, state in _states(facts):
        resources = tuple(sorted({device.resource for device in state.devices}))
        if not _may_break(state, len(resources)):
            continue
        key = id(state.machine), id(state.kubelet), resources
        if key not in known:
            known[key] = _breakage(state, resources)
        if known[key]:
            yield Found(
                node(name),
                known[key],
                "set topologyManagerPolicy none and memoryManagerPolicy None there, or show fewer NUMA nodes",
            )


def _may_break(state: NodeState, resources: int) -> bool:
    """Whether it is worth to ask: a machine whose NUMA nodes do not fit the kubelet's masks, or long lists of hints."""
    numa_nodes = state.machine.numa_nodes
    if len(numa_nodes) > MAX_LISTED_NODES:
        return True
    if state.kubelet.topology_manager_policy == NONE or not numa_nodes:
        return False
    # At most CPUs, memory and each device have a list, of at most all masks.
    return numa_nodes[-1].id >= MASK_BITS or is_too_long((2 ** len(numa_nodes) - 1) ** (2 + resources))


def _breakage(state: NodeState, resources: Iterable[str]) -> str:
    amounts = {"cpu": 1000, "memory": 1000 << 20, **dict.fromkeys(resources, 1000)}
    pod = Pod("", "probe", "", (Container("c", ContainerKind.APP, Resources(amounts, amounts)),))
    verdict = admit(emptied(state), pod)[0]
    return verdict.message if verdict.reason in (KUBELET_WOULD_HANG, KUBELET_WOULD_CRASH) else ""


@check(
    "TM218",
    Severity.ERROR,
    "Two hand out the same CPUs",
    Part.NODES,
    Part.TOPOLOGIES,
    Part.CPU_DRIVERS,
    why="The driver and the kubelet's CPU Manager do not know of each other: two containers get the same CPU.",
    cure="Set cpuManagerPolicy none on nodes with the driver, or keep the driver off nodes with the static policy.",
)
def cpus_have_one_master(facts: Facts) -> Iterator[Found]:
    """A DRA driver publishes CPUs of a node whose kubelet has the static CPU Manager."""
    for name, state in _states(facts):
        if name in facts.cpu_drivers and is_static(state.kubelet):
            message = "the DRA driver dra.cpu hands out its CPUs, and so does its static CPU Manager"
            yield Found(node(name), message, "set cpuManagerPolicy: none there, or take the driver off the node")


@check(
    "TM220",
    Severity.WARNING,
    "Kubelets of one pool have different policies",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The scheduler takes the nodes of a pool for equal. A pod runs on one and is refused by another.",
    cure="Finish the change of the pool's kubelet configuration, or make two pools of it.",
)
def pools_agree(facts: Facts) -> Iterator[Found]:
    """A node has other policies, scope or options than most nodes of its pool. The pool is known by its label."""
    pools = defaultdict[str, dict[str, tuple[str, ...]]](dict)
    for name, state in _states(facts):
        pool = facts.node_labels[name].pool
        if pool:
            pools[pool][name] = _policies(state.kubelet)
    for pool, policies in sorted(pools.items()):
        yield from _odd_ones(pool, policies)


def _policies(settings: KubeletSettings) -> tuple[str, ...]:
    return (
        f"topologyManagerPolicy {settings.topology_manager_policy}",
        f"topologyManagerScope {settings.topology_manager_scope}",
        f"topologyManagerPolicyOptions {_options(settings.topology_manager_policy_options)}",
        f"cpuManagerPolicy {settings.cpu_manager_policy}",
        f"cpuManagerPolicyOptions {_options(settings.cpu_manager_policy_options)}",
        f"memoryManagerPolicy {settings.memory_manager_policy}",
    )


def _options(options: Mapping[str, str]) -> str:
    return ",".join(f"{key}={option}" for key, option in sorted(options.items())) or "none"


def _odd_ones(pool: str, policies: Mapping[str, tuple[str, ...]]) -> Iterator[Found]:
    usual, count = Counter(policies.values()).most_common(1)[0]
    for name, its in sorted(policies.items()):
        others = [f"{mine} (there {theirs.partition(' ')[2]})" for mine, theirs in zip(its, usual, strict=True)]
        differing = [text for text, mine, theirs in zip(others, its, usual, strict=True) if mine != theirs]
        if differing:
            message = f"unlike {count} of pool {pool} it has {', '.join(differing)}"
            yield Found(node(name), message, "give the kubelets of a pool one configuration")


@check(
    "TM221",
    Severity.WARNING,
    "Replay does not know all about a kubelet",
    Part.NODES,
    Part.TOPOLOGIES,
    why="What topomend says of this node is a best effort, and is marked as one.",
    cure="Upgrade topomend if the kubelet is newer. Otherwise the message names the option or the reservation.",
)
def kubelets_are_modelled(facts: Facts) -> Iterator[Found]:
    """The kubelet's release, a feature gate, an option or a reservation is one that replay does not model."""
    for name, state in _states(facts):
        for remark in unmodelled(state.machine, state.kubelet):
            yield Found(node(name), f"replay is not exact: {remark}", "see docs/understand/replay.md")
