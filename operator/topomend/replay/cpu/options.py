"""Options of the CPU Manager's static policy (pkg/kubelet/cm/cpumanager/policy_options.go)."""

from collections.abc import Mapping
from dataclasses import dataclass

from topomend.replay import gates as gate
from topomend.replay.cpu.topology import CPUTopology
from topomend.replay.gates import Gates
from topomend.replay.options import InvalidOption, parse_bool, quoted


@dataclass(frozen=True, slots=True)
class StaticOptions:
    """The options that are on; the field names follow the kubelet's."""

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False
    align_by_socket: bool = False
    distribute_across_cores: bool = False
    strict_reservation: bool = False
    prefer_uncore_cache: bool = False


_FIELDS = {
    gate.FULL_PCPUS_ONLY: "full_pcpus_only",
    gate.DISTRIBUTE_ACROSS_NUMA: "distribute_across_numa",
    gate.ALIGN_BY_SOCKET: "align_by_socket",
    gate.DISTRIBUTE_ACROSS_CORES: "distribute_across_cores",
    gate.STRICT_RESERVATION: "strict_reservation",
    gate.PREFER_UNCORE_CACHE: "prefer_uncore_cache",
}

KNOWN_OPTIONS = frozenset(_FIELDS)
"""The options that a kubelet of some version has."""

_INCOMPATIBLE = (
    (gate.FULL_PCPUS_ONLY, gate.DISTRIBUTE_ACROSS_CORES),
    (gate.DISTRIBUTE_ACROSS_NUMA, gate.DISTRIBUTE_ACROSS_CORES),
    (gate.PREFER_UNCORE_CACHE, gate.DISTRIBUTE_ACROSS_CORES),
    (gate.PREFER_UNCORE_CACHE, gate.DISTRIBUTE_ACROSS_NUMA),
)


def read_options(options: Mapping[str, str], gates: Gates) -> StaticOptions:
    """Read the options of the configuration. Raises InvalidOption if the kubelet would not start with them."""
    values: dict[str, bool] = {}
    for name in sorted(options):
        _check_available(name, gates)
        values[name] = parse_bool(name, options[name])
    for one, other in _INCOMPATIBLE:
        if values.get(one) and values.get(other):
            raise InvalidOption(f"static policy options {one} and {other} can not be used at the same time")
    return StaticOptions(**{_FIELDS[name]: value for name, value in values.items()})


def check_machine(options: StaticOptions, topology: CPUTopology, topology_manager_policy: str) -> None:
    """Raises InvalidOption if the machine or the Topology Manager's policy forbids an option.

    Source: policy_options.go:ValidateStaticPolicyOptions. The errors keep its spelling.
    """
    if not options.align_by_socket:
        return
    if topology_manager_policy == "single-numa-node":
        raise InvalidOption(
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
        )
    if len(topology.sockets) > len(topology.numa_nodes):
        raise InvalidOption(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )


def _check_available(name: str, gates: Gates) -> None:
    level = gates.cpu_option_levels.get(name)
    if level is None:
        raise InvalidOption(f"unknown CPU Manager Policy option: {quoted(name)}")
    if level == "alpha" and not gates.alpha_options:
        raise InvalidOption(f"CPU Manager Policy Alpha-level Options not enabled, but option {quoted(name)} provided")
    if level == "beta" and not gates.beta_options:
        raise InvalidOption(f"CPU Manager Policy Beta-level Options not enabled, but option {quoted(name)} provided")
