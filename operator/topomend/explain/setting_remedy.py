"""Settings of the kubelet with which it would admit a pod that it refuses, each verified by replay.

Owns which settings are tried: those that can be at fault. An option where it breaks the kubelet or where a manager
fails, reserved CPUs that are parts of cores, a policy that compares fewer hints, a manager that pins nothing. Leaves
the amounts of the pod and the ends of others to ``remedy``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from topomend.model.bitmask import CPUSet, format_id_list
from topomend.model.nodes.kubelet import KubeletSettings
from topomend.model.nodes.node_state import NodeState, allocations
from topomend.model.pods.pod import Pod
from topomend.model.verdict import Verdict
from topomend.replay.container_manager import start
from topomend.replay.cpu import static as cpu_static
from topomend.replay.errors import KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG, KUBELET_WOULD_NOT_START
from topomend.replay.gates import MAX_NUMA_NODES
from topomend.replay.topology.merge import TABLED_NODES
from topomend.replay.topology.policy_names import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE

Admits = Callable[[NodeState, Pod], bool]
"""Whether a kubelet admits the pod."""

_Helps = Callable[[KubeletSettings], bool]
"""Whether the kubelet would admit the pod with these settings."""

_CPU_OPTIONS, _TOPOLOGY_OPTIONS = "cpuManagerPolicyOptions", "topologyManagerPolicyOptions"


@dataclass(frozen=True, slots=True)
class SettingRemedy:
    """Settings with which the node would admit the pod, all else as it is.

    ``changes`` has the fields of the KubeletConfiguration; an option follows its field after a dot. None takes it out.
    """

    words: str
    changes: Mapping[str, str | None]


def breaks_kubelet(verdict: Verdict) -> bool:
    """Whether the kubelet would not start, crash or hang: then no amount of the pod is at fault."""
    return verdict.reason in {KUBELET_WOULD_NOT_START, KUBELET_WOULD_CRASH, KUBELET_WOULD_HANG}


def allowing_numa_nodes(kubelet: KubeletSettings, count: int) -> KubeletSettings:
    """The settings with option max-allowable-numa-nodes for ``count`` NUMA nodes."""
    options = {**kubelet.topology_manager_policy_options, MAX_NUMA_NODES: str(count)}
    return replace(kubelet, topology_manager_policy_options=options)


def setting_remedies(node: NodeState, pod: Pod, verdict: Verdict, admits: Admits) -> Iterator[SettingRemedy]:
    """The settings that help; ``verdict`` is the refusal."""

    def helps(kubelet: KubeletSettings) -> bool:
        return admits(replace(node, kubelet=kubelet), pod)

    if breaks_kubelet(verdict) or _fails_at_cpus(verdict):
        yield from _without_options(node, verdict, helps)
        yield from _with_whole_cores(node, helps)
    yield from _with_more_numa_nodes(node, verdict, helps)
    yield from _with_fewer_hints(node, verdict, helps)
    if node.kubelet.memory_manager_policy == "Static":
        kubelet = replace(node.kubelet, memory_manager_policy="None")
        if helps(kubelet):
            yield SettingRemedy("with Memory Manager None", {"memoryManagerPolicy": "None"})


def _fails_at_cpus(verdict: Verdict) -> bool:
    return verdict.failure is not None and verdict.failure.provider == cpu_static.PROVIDER


def _without_options(node: NodeState, verdict: Verdict, helps: _Helps) -> Iterator[SettingRemedy]:
    """The options that the refusal names, or else any, without which the pod would be admitted."""
    helping = [(field, option) for field, option, kubelet in _options_dropped(node.kubelet) if helps(kubelet)]
    named = [(field, option) for field, option in helping if option in verdict.message]
    for field, option in named or helping:
        yield SettingRemedy(f"without the option {option}", {f"{field}.{option}": None})


def _options_dropped(kubelet: KubeletSettings) -> Iterator[tuple[str, str, KubeletSettings]]:
    """Each option, its field, and the settings without it."""
    for option in kubelet.topology_manager_policy_options:
        yield (
            _TOPOLOGY_OPTIONS,
            option,
            replace(kubelet, topology_manager_policy_options=_without(kubelet.topology_manager_policy_options, option)),
        )
    for option in kubelet.cpu_manager_policy_options:
        yield (
            _CPU_OPTIONS,
            option,
            replace(kubelet, cpu_manager_policy_options=_without(kubelet.cpu_manager_policy_options, option)),
        )


def _without(options: Mapping[str, str], option: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if name != option}


def _with_whole_cores(node: NodeState, helps: _Helps) -> Iterator[SettingRemedy]:
    """Reserved CPUs that are whole cores, where they are parts of some now."""
    for reserved in _whole_cores(node):
        if helps(replace(node.kubelet, reserved_cpus=reserved)):
            cpus = format_id_list(reserved)
            yield SettingRemedy(f"with whole cores reserved, such as CPUs {cpus}", {"reservedSystemCPUs": cpus})
            return


def _whole_cores(node: NodeState) -> Iterator[CPUSet]:
    """The cores of the reserved CPUs, and as few of them as have as many CPUs; none of which a container holds any."""
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str) or kubelet.cpu is None or kubelet.cpu.reserved == kubelet.cpu.reserved_physical:
        return
    reserved, together = kubelet.cpu.reserved, kubelet.cpu.reserved_physical
    cores = [threads for threads in kubelet.cpu.topology.cores.values() if threads & reserved]
    fewest: CPUSet = 0
    for threads in sorted(cores, key=lambda threads: (threads & ~reserved).bit_count()):
        if fewest.bit_count() < reserved.bit_count():
            fewest |= threads
    held: CPUSet = 0
    for container in allocations(node.pods):
        held |= container.cpus
    yield from (cpus for cpus in (together, fewest) if not cpus & ~reserved & held)


def _with_more_numa_nodes(node: NodeState, verdict: Verdict, helps: _Helps) -> Iterator[SettingRemedy]:
    """Option max-allowable-numa-nodes for a kubelet that does not start on so many; with it, if need be, a policy.

    Not for a machine of so many that the kubelet would take hours to list the masks of one resource.
    """
    count = str(len(node.machine.numa_nodes))
    if verdict.reason != KUBELET_WOULD_NOT_START or "NUMA Nodes" not in verdict.message or int(count) > TABLED_NODES:
        return
    kubelet = allowing_numa_nodes(node.kubelet, int(count))
    words, changes = f"with the option {MAX_NUMA_NODES}={count}", {f"{_TOPOLOGY_OPTIONS}.{MAX_NUMA_NODES}": count}
    if helps(kubelet):
        yield SettingRemedy(words, changes)
    elif helps(replace(kubelet, topology_manager_policy=SINGLE_NUMA_NODE)):
        changes["topologyManagerPolicy"] = SINGLE_NUMA_NODE
        yield SettingRemedy(f"{words} and policy {SINGLE_NUMA_NODE}", changes)


def _with_fewer_hints(node: NodeState, verdict: Verdict, helps: _Helps) -> Iterator[SettingRemedy]:
    """Policy single-numa-node, which compares single NUMA nodes only."""
    if verdict.reason != KUBELET_WOULD_HANG or node.kubelet.topology_manager_policy not in {RESTRICTED, BEST_EFFORT}:
        return
    if helps(replace(node.kubelet, topology_manager_policy=SINGLE_NUMA_NODE)):
        yield SettingRemedy(f"with policy {SINGLE_NUMA_NODE}", {"topologyManagerPolicy": SINGLE_NUMA_NODE})
