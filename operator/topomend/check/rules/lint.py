"""TM4xx: what is wrong with a kubelet's configuration on a machine, before a kubelet has it.

The rules about a node's settings are those of ``kubelets``, asked of the node that would be.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from topomend.cache.snapshot import Publication, Snapshot
from topomend.check.check import Check, check
from topomend.check.facts import Configured, Facts
from topomend.check.facts import Publication as Published
from topomend.check.finding import ORDER, Found, Report, Severity
from topomend.check.rules import kubelets
from topomend.check.rules.kubelets import STATIC_MEMORY, has_choice, is_static
from topomend.model.bitmask import format_id_list
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import KubeletSettings, MemoryReservation
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.quantity import format_bytes
from topomend.replay.container_manager import ContainerManager, start, why_not_started
from topomend.replay.cpu.static import StaticPolicy
from topomend.replay.gates import MAX_NUMA_NODES, NEWEST_MINOR, OLDEST_MINOR, minor_of, read_gates
from topomend.replay.memory.reservation import corrected
from topomend.replay.startup.configuration import Configuration
from topomend.replay.startup.go_text import InvalidText
from topomend.replay.startup.quantity import InvalidQuantity, Quantity
from topomend.replay.startup.rules.capacity import over_capacity
from topomend.replay.startup.rules.run import STARTED_ONCE, kept_memory, runs_once
from topomend.replay.startup.validation import MAX_SENTENCES
from topomend.replay.topology.policy_names import NONE

GROUP = ("TM4", "a kubelet's configuration")

FLAGS = "flags of the kubelet's command line, which override the file"

NOT_LOOKED_AT = (
    "state files that an earlier kubelet has left",
    "cgroups, swap, disks, process ids, certificates and the container runtime of the node",
)
"""What may also keep a kubelet from starting, and no file and no machine here tells."""

_NANO = 10**9


# Whether it starts


def refusals(
    config: Configuration, settings: KubeletSettings, machine: Machine, sentences: tuple[str, ...]
) -> tuple[str, ...]:
    """Every reason why the kubelet does not start on this machine, in its own words; it stops at the first.

    One that starts and ends at once does not start either: its node is NotReady all the same.
    ``sentences`` are those about the configuration alone. All of ``settings`` could be read.
    """
    manager = why_not_started(machine, settings, start(machine, settings))
    found = (*sentences, *([manager] if manager else ()))
    if found:
        return found
    capacity = over_capacity(config, machine.cpus.bit_count())
    if capacity:
        return (capacity,)
    return (STARTED_ONCE,) if runs_once(config.minor, config.content) else ()


# Reserved memory


def _kept(config: Configuration) -> Quantity | None:
    """The memory that the kubelet keeps from pods; None where it refuses an amount in the configuration."""
    fields = ("kubeReserved", "systemReserved", "evictionHard")
    if any(text.startswith("-") for field in fields for text in config.pairs(field).values()):
        return None
    try:
        return kept_memory(config)
    except (InvalidQuantity, InvalidText):
        return None


def correction(configured: Configured) -> tuple[MemoryReservation, ...] | None:
    """The ``reservedMemory`` with which a static Memory Manager starts; None if nothing is to be corrected.

    Empty if nothing can be: no whole number of bytes is kept, none at all, or more than the machine has.
    """
    state = configured.state
    amount = _kept(configured.config)
    if not _reserves_memory(state.kubelet) or amount is None or not configured.is_read:
        return None
    if amount.nano % _NANO:
        return ()
    found = corrected(amount.nano // _NANO, state.kubelet.reserved_memory, state.machine)
    given = sorted(state.kubelet.reserved_memory, key=lambda each: (each.numa_node, each.resource))
    return None if found == tuple(given) and found else found


def _reserves_memory(settings: KubeletSettings) -> bool:
    return settings.memory_manager_policy == STATIC_MEMORY and read_gates(settings).memory_manager


# The checks


def _configured(facts: Facts) -> Configured:
    assert facts.configured is not None  # noqa: S101 - lint alone makes these checks
    return facts.configured


def _found(facts: Facts, message: str, cure: str) -> Found:
    return Found(_configured(facts).subject, message, cure)


def _cpu_manager(state: NodeState) -> StaticPolicy | None:
    kubelet = start(state.machine, state.kubelet)
    return kubelet.cpu if isinstance(kubelet, ContainerManager) else None


@check(
    "TM401",
    Severity.ERROR,
    "The kubelet does not start",
    why="A node whose kubelet does not start is NotReady, and its new pods wait.",
    cure="Correct what the sentence names. It is the kubelet's own.",
)
def kubelet_starts(facts: Facts) -> Iterator[Found]:
    """A kubelet of this release refuses the configuration, by itself or on this machine."""
    for sentence in _configured(facts).refusals:
        yield _found(facts, sentence, _cure_of(sentence, _configured(facts)))


def _cure_of(sentence: str, configured: Configured) -> str:
    settings, machine = configured.state.kubelet, configured.state.machine
    if "unknown flag" in sentence:
        return f"correct the flag's name, or take it out: v1.{minor_of(settings.version)} has no such flag"
    if not configured.is_read:
        return "give the field a value of that kind"
    if _reserves_memory(settings) and ("by Node Allocatable" in sentence or "reserved memory" in sentence):
        return _amount_cure(configured)
    if "unable to determine reserved CPU" in sentence:
        return "set reservedSystemCPUs, or kubeReserved or systemReserved with cpu"
    if "is not a subset of online-cpus" in sentence:
        return f"take reservedSystemCPUs from {format_id_list(machine.cpus)}"
    if "NUMA Nodes" in sentence and minor_of(settings.version) >= 31:
        return f'set topologyManagerPolicyOptions {{{MAX_NUMA_NODES}: "{len(machine.numa_nodes)}"}}'
    if "feature gate" in sentence and "require" not in sentence:
        return f"take the gate out: v1.{minor_of(settings.version)} does not let it be set so"
    if sentence == STARTED_ONCE:
        return "take runOnce out: such a kubelet runs the pods of its files, and ends"
    named = [name for name in _options(settings) if f'"{name}"' in sentence]
    return _history(named[0]) if named else "correct this: the sentence is the kubelet's own"


def _amount_cure(configured: Configured) -> str:
    amount = _kept(configured.config)
    if amount is None or not correction(configured):
        return "set kubeReserved, systemReserved or evictionHard of memory to some of what the machine has"
    return f"make the memory of reservedMemory {amount} in all, to the byte, and leave huge pages out"


def _options(settings: KubeletSettings) -> tuple[str, ...]:
    return *settings.cpu_manager_policy_options, *settings.topology_manager_policy_options


def _history(option: str) -> str:
    """Since which releases an option has been there, and what it needs."""
    since: dict[str, int] = {}
    for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
        gates = read_gates(KubeletSettings(f"v1.{minor}.0"))
        for levels in (gates.cpu_option_levels, gates.topology_option_levels):
            if option in levels:
                since.setdefault(levels[option], minor)
    known = [
        f"{level} in v1.{minor}" + (" or before" if minor == OLDEST_MINOR else "") for level, minor in since.items()
    ]
    if not known:
        return f"take {option} out: no kubelet from v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR} knows it"
    return (
        f"{option} became {', '.join(known)}; alpha needs the manager's gate PolicyAlphaOptions, "
        "beta its gate PolicyBetaOptions"
    )


@check(
    "TM402",
    Severity.WARNING,
    "Something is passed over",
    why="The kubelet starts and says nothing, and the setting has its default.",
    cure="Correct the name, or take it out.",
)
def all_is_read(facts: Facts) -> Iterator[Found]:
    """A field that no kubelet of this release knows, a field that stands twice, or a further document in the file."""
    passed_over = _configured(facts).passed_over
    for remark in passed_over[:MAX_SENTENCES]:
        yield _found(facts, remark, "correct it, or take it out")
    if len(passed_over) > MAX_SENTENCES:
        yield _found(
            facts, f"{len(passed_over) - MAX_SENTENCES} more are passed over", "correct them, or take them out"
        )


@check(
    "TM403",
    Severity.WARNING,
    "A setting has no effect",
    why="Whoever wrote it relies on something that does not happen.",
    cure="Set the policy that the setting belongs to, or take it out.",
)
def settings_have_effect(facts: Facts) -> Iterator[Found]:
    """`topologyManagerPolicyOptions` under policy none, or `reservedMemory` without a static Memory Manager."""
    settings = _configured(facts).state.kubelet
    if settings.topology_manager_policy == NONE and settings.topology_manager_policy_options:
        options = ", ".join(settings.topology_manager_policy_options)
        yield _found(facts, f"its topologyManagerPolicy none ignores {options}", "set a topologyManagerPolicy")
    if settings.reserved_memory and not _reserves_memory(settings):
        yield _found(
            facts,
            f"its memoryManagerPolicy {settings.memory_manager_policy} reserves nothing of reservedMemory",
            "set memoryManagerPolicy: Static",
        )


@check(
    "TM404",
    Severity.INFO,
    "The kubelet aligns nothing",
    why="It refuses no pod for its topology, so topomend has nothing to do on such a node.",
    cure="Set topologyManagerPolicy and cpuManagerPolicy if pods there should be aligned.",
)
def something_is_aligned(facts: Facts) -> Iterator[Found]:
    """The Topology Manager's policy is none, and so is the CPU Manager's."""
    settings = _configured(facts).state.kubelet
    if settings.topology_manager_policy == NONE and not is_static(settings):
        yield _found(
            facts,
            "its topologyManagerPolicy is none: it aligns nothing, and topomend has nothing to do there",
            "set topologyManagerPolicy and cpuManagerPolicy if pods should be aligned",
        )


@check(
    "TM405",
    Severity.WARNING,
    "CPUs are not aligned",
    why="All CPUs are shared: the Topology Manager has devices and memory to align, and no CPU.",
    cure="Set cpuManagerPolicy static and reservedSystemCPUs.",
)
def cpus_are_aligned(facts: Facts) -> Iterator[Found]:
    """The Topology Manager aligns, the CPU Manager is not static, and the machine has several NUMA nodes with CPUs."""
    state = _configured(facts).state
    policy = state.kubelet.topology_manager_policy
    if policy != NONE and not is_static(state.kubelet) and has_choice(state):
        message = f"its topologyManagerPolicy is {policy} and its cpuManagerPolicy none: no container has CPUs to align"
        yield _found(facts, message, "set cpuManagerPolicy: static and reservedSystemCPUs")


@check(
    "TM406",
    Severity.INFO,
    "Memory is not aligned",
    why="A container's CPUs are on one NUMA node, and its memory comes from any.",
    cure="Set memoryManagerPolicy Static and reservedMemory.",
)
def memory_is_aligned(facts: Facts) -> Iterator[Found]:
    """The Topology Manager and a static CPU Manager align, and there is no static Memory Manager."""
    state = _configured(facts).state
    settings = state.kubelet
    aligns = settings.topology_manager_policy != NONE and is_static(settings)
    if aligns and not _reserves_memory(settings) and has_choice(state):
        message = "its Memory Manager is not static: memory of containers is not aligned with their CPUs"
        yield _found(facts, message, "set memoryManagerPolicy: Static and reservedMemory")


@check(
    "TM407",
    Severity.INFO,
    "Containers of a pod are aligned apart",
    why="Each container is on one NUMA node, and two containers of a pod may be on two.",
    cure="Set topologyManagerScope pod if the containers of a pod work together.",
)
def pods_are_aligned(facts: Facts) -> Iterator[Found]:
    """The Topology Manager refuses pods, and its scope is container."""
    state = _configured(facts).state
    settings = state.kubelet
    refuses = settings.topology_manager_policy in ("restricted", "single-numa-node")
    if refuses and settings.topology_manager_scope == "container" and has_choice(state):
        message = "its topologyManagerScope is container: two containers of a pod may be on two NUMA nodes"
        yield _found(facts, message, "set topologyManagerScope: pod if they work together")


@check(
    "TM408",
    Severity.INFO,
    "Containers must ask for whole cores",
    why="A Guaranteed pod with another number of CPUs ends as Failed with SMTAlignmentError, wherever it runs there.",
    cure="Have pods ask for whole cores, or take full-pcpus-only out.",
)
def cores_are_divided(facts: Facts) -> Iterator[Found]:
    """`full-pcpus-only` is on, and a core of the machine has several threads."""
    cpu = _cpu_manager(_configured(facts).state)
    if cpu and cpu.options.full_pcpus_only and cpu.topology.cpus_per_core > 1:
        threads = cpu.topology.cpus_per_core
        message = f"full-pcpus-only refuses a number of CPUs that {threads} does not divide (SMTAlignmentError)"
        yield _found(facts, message, f"have pods there ask for a multiple of {threads} CPUs")


@check(
    "TM409",
    Severity.WARNING,
    "Reserved CPUs split a core",
    why="The other threads of a reserved core are given to no container: they are lost to exclusive CPUs.",
    cure="Reserve whole cores.",
)
def reserved_cores_are_whole(facts: Facts) -> Iterator[Found]:
    """`full-pcpus-only` is on, and of a core some threads are reserved and others are not."""
    cpu = _cpu_manager(_configured(facts).state)
    lost = cpu.reserved_physical & ~cpu.reserved if cpu and cpu.options.full_pcpus_only else 0
    if cpu and lost:
        message = f"CPUs {format_id_list(lost)} share cores with reserved ones, so full-pcpus-only gives none away"
        yield _found(facts, message, f"set reservedSystemCPUs: {format_id_list(cpu.reserved_physical)}")


@check(
    "TM410",
    Severity.WARNING,
    "Reserved memory depends on the machine's memory",
    why="`reservedMemory` must be right to the byte, and another kernel or firmware leaves some bytes more or fewer.",
    cure="Set evictionHard memory.available to an amount, such as 100Mi.",
)
def reserved_memory_is_an_amount(facts: Facts) -> Iterator[Found]:
    """The Memory Manager is static, and the hard eviction threshold of memory is a percentage."""
    configured = _configured(facts)
    share = configured.config.pairs("evictionHard").get("memory.available", "")
    total = configured.config.host.memory
    if _reserves_memory(configured.state.kubelet) and share.endswith("%") and share not in ("0%", "100%") and total:
        message = f"its evictionHard memory.available is {share} of the machine's memory, here taken for {total} bytes"
        yield _found(facts, f"{message} ({format_bytes(total)})", "set evictionHard memory.available to an amount")


OF_NODES = (
    kubelets.reserved_cpus_leave_some,
    kubelets.reserved_cpus_spare_accelerators,
    kubelets.alignment_is_kept,
    kubelets.kubelets_would_answer,
    kubelets.kubelets_are_modelled,
)
"""The checks of nodes that depend on the machine and the settings alone."""

LINT_CHECKS = tuple(each for each in vars().values() if isinstance(each, Check))
"""Those of this module, ordered by code."""


def lint(configured: Configured) -> Report:
    """What is wrong with the configuration, the worst first."""
    facts = _facts(configured)
    checks = (*LINT_CHECKS, *OF_NODES) if configured.is_read else (kubelet_starts,)
    found = [finding for each in checks for finding in each.findings(facts)]
    findings = (replace(finding, subject=configured.subject) for finding in found)
    ordered = sorted(findings, key=lambda finding: (ORDER[finding.severity], finding.code))
    return Report(tuple(ordered), (), len(checks))


def _facts(configured: Configured) -> Facts:
    """A cluster of the one node that would be."""
    state = configured.state
    functions = state.machine.pci_devices
    accelerators = [each.numa_node for each in functions if each.kind == "accelerator" and each.numa_node is not None]
    return Facts(
        now=datetime.min.replace(tzinfo=UTC),
        snapshot=Snapshot({state.name: Node(state.name)}, publications={state.name: Publication(state, "")}),
        published={state.name: Published(accelerators=tuple(sorted(accelerators)), functions=len(functions))},
        configured=configured,
    )
