"""Answers for pkg/kubelet/cm/cpumanager: the choice of CPUs, and the static policy's hints and allocations."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from verify.kubelet_tests.answers.objects import (
    read_container,
    read_hint,
    read_pod,
    written_hints,
    written_refusal,
)

from topomend.model.bitmask import CPUSet, format_id_list, mask_of, parse_id_list
from topomend.replay.cpu.assignment import AssignmentError, Strategy, take
from topomend.replay.cpu.options import StaticOptions
from topomend.replay.cpu.static import CPUManager, StaticPolicy, rules_of
from topomend.replay.cpu.topology import CPUTopology
from topomend.replay.gates import Gates
from topomend.replay.topology.hints import ResourceOffer


def take_packed(arguments: dict[str, Any], gates: Gates) -> dict[str, str]:
    """The CPUs that best fit takes (takeByTopologyNUMAPacked)."""
    options = arguments["options"]
    return _taken(
        arguments,
        replace(
            rules_of(gates),
            spread=options.get("cpuSortingStrategy") == "spread",
            uncore_cache=options.get("preferAlignByUncoreCache", False),
        ),
    )


def take_distributed(arguments: dict[str, Any], gates: Gates) -> dict[str, str]:
    """The CPUs that an even distribution takes (takeByTopologyNUMADistributed)."""
    options = arguments["options"]
    return _taken(
        arguments,
        replace(
            rules_of(gates),
            spread=options.get("cpuSortingStrategy") == "spread",
            group=options["cpuGroupSize"],
            by_socket=options.get("alignBySocket", False),
            least_nodes=options.get("minNUMAsFromHint", 0),
        ),
    )


def guaranteed_cpus(arguments: dict[str, Any], gates: Gates) -> int:
    """The exclusive CPUs of a container (guaranteedCPUs)."""
    pod = read_pod(arguments["pod"])
    return _manager(_EMPTY, gates).requested(pod, read_container(arguments["container"], pod))


def pod_guaranteed_cpus(arguments: dict[str, Any], gates: Gates) -> int:
    """The exclusive CPUs of a whole pod (podGuaranteedCPUs)."""
    return _manager(_EMPTY, gates).requested_by_pod(read_pod(arguments["pod"]))


def hints(arguments: dict[str, Any], gates: Gates) -> dict[str, Any] | None:
    """The hints for a container (GetTopologyHints)."""
    pod = read_pod(arguments["pod"])
    manager = _manager(arguments, gates)
    return _written(arguments, manager, manager.hints(pod, read_container(arguments["container"], pod)))


def pod_hints(arguments: dict[str, Any], gates: Gates) -> dict[str, Any] | None:
    """The hints for a whole pod (GetPodTopologyHints)."""
    manager = _manager(arguments, gates)
    return _written(arguments, manager, manager.pod_hints(read_pod(arguments["pod"])))


def allocate(arguments: dict[str, Any], gates: Gates) -> dict[str, Any]:
    """The state after the allocation for a container, and the refusal (Allocate)."""
    pod, manager = read_pod(arguments["pod"]), _manager(arguments, gates)
    affinity = read_hint(arguments["affinity"])
    rejection = manager.allocate(pod, read_container(arguments["container"], pod), affinity.mask)
    return {**_state(manager), "refusal": written_refusal(rejection)}


def allocate_pod(arguments: dict[str, Any], gates: Gates) -> dict[str, Any]:
    """The state after the allocation for a whole pod, and the refusal (AllocatePod)."""
    pod, manager = read_pod(arguments["pod"]), _manager(arguments, gates)
    rejection = manager.allocate_pod(pod, read_hint(arguments["affinity"]).mask)
    exclusive = [container.name for container in pod.containers if manager.requested(pod, container)]
    return {**_state(manager), "exclusive": exclusive, "refusal": written_refusal(rejection)}


ANSWERERS = {
    "takeByTopologyNUMAPacked": take_packed,
    "takeByTopologyNUMADistributed": take_distributed,
    "guaranteedCPUs": guaranteed_cpus,
    "podGuaranteedCPUs": pod_guaranteed_cpus,
    "cpumanager.GetTopologyHints": hints,
    "cpumanager.GetPodTopologyHints": pod_hints,
    "cpumanager.Allocate": allocate,
    "cpumanager.AllocatePod": allocate_pod,
}

_EMPTY: dict[str, Any] = {"topology": {"CPUDetails": {}}}
"""What a manager needs that is only asked for a number."""


def read_topology(document: Mapping[str, Any]) -> CPUTopology:
    """The kubelet's CPUTopology. As in the kubelet, its numbers of elements count, whatever its CPUs say."""
    details = {int(cpu): info for cpu, info in (document["CPUDetails"] or {}).items()}
    cores, sockets = _groups(details, "CoreID"), _groups(details, "SocketID")
    numa_nodes, caches = _groups(details, "NUMANodeID"), _groups(details, "UncoreCacheID")
    count = document.get("NumCPUs", 0)
    return CPUTopology(
        cpus=mask_of(details),
        numa_nodes=numa_nodes,
        sockets=sockets,
        uncore_caches=caches,
        cores=cores,
        cores_of_numa_node=_within(cores, numa_nodes),
        cores_of_socket=_within(cores, sockets),
        cores_of_uncore_cache=_within(cores, caches),
        numa_nodes_of_sockets=tuple(
            mask_of(node for node, local in numa_nodes.items() if local & cpus) for cpus in sockets.values()
        ),
        cpus_per_core=_average(count, document.get("NumCores", 0)),
        cpus_per_socket=_average(count, document.get("NumSockets", 0)),
        cpus_per_uncore_cache=_average(count, document.get("NumUncoreCache", 0)),
    )


def _groups(details: Mapping[int, Mapping[str, int]], element: str) -> dict[int, CPUSet]:
    groups: dict[int, CPUSet] = {}
    for cpu, info in details.items():
        groups[info.get(element, 0)] = groups.get(info.get(element, 0), 0) | 1 << cpu
    return dict(sorted(groups.items()))


def _within(cores: Mapping[int, CPUSet], larger: Mapping[int, CPUSet]) -> dict[int, tuple[int, ...]]:
    return {number: tuple(core for core, threads in cores.items() if threads & cpus) for number, cpus in larger.items()}


def _average(cpus: int, elements: int) -> int:
    return cpus // elements if elements else 0


def _taken(arguments: Mapping[str, Any], strategy: Strategy) -> dict[str, str]:
    available = parse_id_list(arguments["available"])
    taken = take(read_topology(arguments["topology"]), available, arguments["count"], strategy)
    if isinstance(taken, AssignmentError):
        return {"error": taken.text}
    return {"cpus": format_id_list(taken)}


def _manager(arguments: Mapping[str, Any], gates: Gates) -> CPUManager:
    sets = {name: parse_id_list(arguments.get(name, "")) for name in ("reserved", "reservedPhysical", "pool", "bubble")}
    options = _options(arguments.get("options", {}))
    topology = read_topology(arguments["topology"])
    policy = StaticPolicy(topology, options, gates, sets["reserved"], sets["reservedPhysical"])
    assigned = {name: parse_id_list(text) for name, text in arguments.get("assigned", {}).items()}
    manager = CPUManager(policy, sets["pool"], assigned, sets["bubble"])
    manager._reusable = parse_id_list(arguments.get("reusable", ""))
    return manager


def _options(document: Mapping[str, bool]) -> StaticOptions:
    return StaticOptions(
        full_pcpus_only=document.get("FullPhysicalCPUsOnly", False),
        distribute_across_numa=document.get("DistributeCPUsAcrossNUMA", False),
        align_by_socket=document.get("AlignBySocket", False),
        distribute_across_cores=document.get("DistributeCPUsAcrossCores", False),
        strict_reservation=document.get("StrictCPUReservation", False),
        prefer_uncore_cache=document.get("PreferAlignByUncoreCacheOption", False),
    )


def _written(
    arguments: Mapping[str, Any], manager: CPUManager, offers: Iterable[ResourceOffer]
) -> dict[str, Any] | None:
    nodes = read_topology(arguments["topology"]).numa_nodes
    return {offer.resource: written_hints(offer, nodes, manager.usage) for offer in offers} or None


def _state(manager: CPUManager) -> dict[str, Any]:
    return {
        "pool": format_id_list(manager.pool),
        "bubble": format_id_list(manager.bubble),
        "reusable": format_id_list(manager._reusable),
        "assigned": {name: format_id_list(cpus) for name, cpus in manager.assigned.items()},
    }
