"""TM2xx: what of a node is not known, and which of its kubelet's settings do not do what people expect of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from topomend.cache.changes import SILENT
from topomend.check.check import check
from topomend.check.facts import Facts, Part
from topomend.check.finding import Found, Severity, node
from topomend.explain.trace_text import numa_text
from topomend.model.bitmask import format_id_list, mask_of
from topomend.model.condition import WOULD_NOT_START_AGAIN, Condition
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

LAYOUTS = "docs/run/layouts.md"
STATIC, STATIC_MEMORY = "static", "Static"
READY, HOST, CONFIGURATION, ALLOCATIONS = "Ready", "HostDiscovered", "KubeletConfigRead", "AllocationsRead"
ZONES_PUBLISHED, FEATURES_PUBLISHED = "NodeResourceTopologyPublished", "NodeFeaturePublished"
MASK_BITS = 64
"""How many NUMA nodes the kubelet's masks hold (topologymanager/bitmask/bitmask.go)."""

RESTART = "correct the kubelet's configuration, and restart it"


def _states(facts: Facts) -> Iterator[tuple[str, NodeState]]:
    """The nodes whose published state can be relied on, by name."""
    for name in sorted(facts.snapshot.nodes):
        publication = facts.snapshot.publications.get(name)
        if publication and not publication.problem:
            yield name, publication.state


def _agents(facts: Facts, verb: str) -> str:
    """What tells more of the agents."""
    namespace = facts.agents[0].subject.namespace if facts.agents else "topomend-agent"
    return f"see its agent: kubectl -n {namespace} {verb} -l app.kubernetes.io/component=agent"


def is_static(settings: KubeletSettings) -> bool:
    """Whether the CPU Manager gives containers CPUs of their own."""
    return settings.cpu_manager_policy == STATIC


def has_choice(state: NodeState) -> bool:
    """Whether the machine has several NUMA nodes with CPUs, so that a container can be on the wrong one."""
    return len(state.machine.cpus_of_numa_node) > 1


@check(
    "TM201",
    Severity.ERROR,
    "No agent publishes a node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="No refusal there is explained, and no pod is placed there by topomend.",
    cure="See whether the node's agent runs (TM112), and read its log.",
)
def nodes_are_published(facts: Facts) -> Iterator[Found]:
    """A Linux node has no NodeTopology, or an empty one."""
    for name in sorted(facts.snapshot.nodes):
        if name in facts.snapshot.publications or not facts.node_labels[name].linux:
            continue
        if name not in facts.snapshot.unreadable:
            yield Found(node(name), "no agent publishes its state", _agents(facts, "get pods -o wide"))
        elif name not in facts.published:
            yield Found(node(name), facts.snapshot.unreadable[name], _agents(facts, "logs"))


@check(
    "TM202",
    Severity.ERROR,
    "A node's publication cannot be read",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The node counts as unknown.",
    cure="Delete the NodeTopology: its agent writes it anew.",
)
def publications_are_readable(facts: Facts) -> Iterator[Found]:
    """A field of a NodeTopology has a value that it cannot have, or the object is larger than an agent writes."""
    for name, why in sorted(facts.snapshot.unreadable.items()):
        if name in facts.published and name in facts.snapshot.nodes:
            yield Found(node(name), why, f"kubectl delete ntopo {name}")


@check(
    "TM203",
    Severity.ERROR,
    "An agent is silent",
    Part.NODES,
    Part.TOPOLOGIES,
    why="What it published may be old, so the node counts as unknown.",
    cure="See whether the agent runs and reaches the API server, and whether the node's clock is right.",
)
def agents_confirm(facts: Facts) -> Iterator[Found]:
    """The heartbeat of a NodeTopology is older than half an hour."""
    for name, publication in sorted(facts.snapshot.publications.items()):
        if publication.agent_problem == SILENT and name in facts.snapshot.nodes:
            yield Found(node(name), SILENT.partition(";")[0], _agents(facts, "logs"))


@check(
    "TM204",
    Severity.ERROR,
    "A publication contradicts its Node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="An agent that claims more than its node has is not believed, and the node counts as unknown.",
    cure="Restart the kubelet if the machine has changed since its start. Otherwise see who runs as the agent there.",
)
def publications_are_believed(facts: Facts) -> Iterator[Found]:
    """A NodeTopology has more CPUs, NUMA nodes, memory or devices than its Node."""
    for name, publication in sorted(facts.snapshot.publications.items()):
        if publication.distrust and not publication.agent_problem:
            yield Found(node(name), publication.distrust, "restart the kubelet, or see who runs as the agent there")


@check(
    "TM205",
    Severity.ERROR,
    "A machine cannot be read",
    Part.NODES,
    Part.TOPOLOGIES,
    why="Without the machine nothing can be replayed.",
    cure="The message names the file of sysfs. Virtual machines may lack some.",
)
def machines_are_known(facts: Facts) -> Iterator[Found]:
    """The condition `HostDiscovered` of a NodeTopology is not True."""
    yield from _conditions(facts, HOST, "the message names the file of /sys that is missing or wrong")


@check(
    "TM206",
    Severity.ERROR,
    "A kubelet's settings are not known",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The policies decide what the kubelet admits. Without them nothing can be replayed.",
    cure=f"Add the component of `deploy/` that the message names to your kustomization. {LAYOUTS} lists all.",
)
def settings_are_known(facts: Facts) -> Iterator[Found]:
    """The condition `KubeletConfigRead` of a NodeTopology is not True."""
    yield from _conditions(facts, CONFIGURATION, f"the message names what cures this; see {LAYOUTS}")


@check(
    "TM207",
    Severity.ERROR,
    "A node's allocations are not known",
    Part.NODES,
    Part.TOPOLOGIES,
    why="Which CPUs, memory and devices are free is not known.",
    cure="The message names the socket or the file. The component kubelet-root is for another root folder.",
)
def allocations_are_known(facts: Facts) -> Iterator[Found]:
    """The condition `AllocationsRead` of a NodeTopology is not True."""
    yield from _conditions(facts, ALLOCATIONS, f"the message names the socket or file; see {LAYOUTS}")


def _conditions(facts: Facts, kind: str, cure: str) -> Iterator[Found]:
    for name, condition in _published(facts, kind):
        if condition.status != "True":
            yield Found(node(name), f"{condition.reason}: {condition.message}", cure)


def _published(facts: Facts, *kinds: str) -> Iterator[tuple[str, Condition]]:
    """The conditions of these kinds that NodeTopologies have, by the name of their node."""
    for name in sorted(facts.snapshot.nodes):
        published = facts.published.get(name)
        for kind in kinds:
            if published and (condition := published.condition(kind)):
                yield name, condition


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
    "TM219",
    Severity.WARNING,
    "Two write a node's NodeResourceTopology",
    Part.NODES,
    Part.TOPOLOGIES,
    why="Each overwrites the other's zones, and the scheduler plugin reads whichever came last.",
    cure="Take the component node-resource-topology out, or the other exporter off. Then delete its object.",
)
def zones_have_one_writer(facts: Facts) -> Iterator[Found]:
    """The agent found that another program writes the NodeResourceTopology of its node."""
    for name, condition in _published(facts, ZONES_PUBLISHED):
        if condition.reason == "OtherWriter":
            yield Found(node(name), condition.message, "take the component node-resource-topology out")


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


@check(
    "TM222",
    Severity.ERROR,
    "An agent does not vouch for its node",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The node counts as unknown: no pod is placed there by topomend.",
    cure="The message is the agent's own. Its log has more.",
)
def agents_vouch(facts: Facts) -> Iterator[Found]:
    """The condition `Ready` of a NodeTopology is not True, and none of its other conditions says why."""
    for name, publication in sorted(facts.snapshot.publications.items()):
        published = facts.published.get(name)
        said = [published.condition(kind) for kind in (HOST, CONFIGURATION, ALLOCATIONS)] if published else []
        is_explained = any(condition and condition.status != "True" for condition in said)
        problem = publication.agent_problem
        if problem and problem != SILENT and not is_explained and name in facts.snapshot.nodes:
            yield Found(node(name), problem, _agents(facts, "logs"))


@check(
    "TM223",
    Severity.WARNING,
    "An enabled object is not published",
    Part.NODES,
    Part.TOPOLOGIES,
    why="The program that reads it decides without it, or by an old one.",
    cure="Install the kind, apply the component's rights, or take the component out.",
)
def components_publish(facts: Facts) -> Iterator[Found]:
    """The API server refuses an agent the NodeResourceTopology or the NodeFeature of its node."""
    for name, condition in _published(facts, ZONES_PUBLISHED, FEATURES_PUBLISHED):
        if condition.reason in _NOT_PUBLISHED:
            yield Found(node(name), condition.message, "do so, or take the component out")


_NOT_PUBLISHED = {"KindNotInstalled", "Forbidden", "Refused"}
