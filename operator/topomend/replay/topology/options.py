"""Options of the Topology Manager (pkg/kubelet/cm/topologymanager/policy_options.go)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from topomend.replay import gates as gate
from topomend.replay.gates import DEFAULT_MAX_NUMA_NODES, Gates
from topomend.replay.options import InvalidOption, parse_bool, quoted
from topomend.replay.topology import numa_allocation_strategy, prefer_most_allocated_numa_node

PROPOSED = frozenset({numa_allocation_strategy.OPTION, prefer_most_allocated_numa_node.OPTION})
"""The options that no released kubelet knows."""

KNOWN_OPTIONS = PROPOSED | {gate.PREFER_CLOSEST, gate.MAX_NUMA_NODES}
"""The options that a kubelet of some version has, and the proposed ones."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The Topology Manager's options.

    ``prefer_closest`` ranks masks of one width by distance. ``max_numa_nodes`` is the most NUMA nodes with which the
    kubelet starts. ``strategy`` decides between affinities that fit equally well: a value of the proposed
    numa-allocation-strategy, or the name of the proposed prefer-most-allocated-numa-node if that is on. ``proposed``
    are the names of those options that are set.
    """

    prefer_closest: bool = False
    max_numa_nodes: int = DEFAULT_MAX_NUMA_NODES
    strategy: str = numa_allocation_strategy.NONE
    proposed: tuple[str, ...] = ()


def read_options(options: Mapping[str, str], gates: Gates) -> TopologyOptions:
    """Read the options of the configuration. Raises InvalidOption if the kubelet would not start with them.

    No kubelet knows both proposed options. If both are on, numa-allocation-strategy counts.
    """
    closest, most, strategies = False, DEFAULT_MAX_NUMA_NODES, {}
    for name in sorted(options):
        if name in PROPOSED and gates.topology_alpha_options:
            strategies[name] = _strategy(name, options[name])
            continue
        _check_available(name, gates)
        if name == gate.PREFER_CLOSEST:
            closest = parse_bool(name, options[name])
        else:
            most = _max_numa_nodes(name, options[name])
    on = [strategy for strategy in strategies.values() if strategy != numa_allocation_strategy.NONE]
    return TopologyOptions(closest, most, on[0] if on else numa_allocation_strategy.NONE, tuple(strategies))


def remark(name: str) -> str:
    """What every verdict of a kubelet says whose configuration sets the proposed option ``name``."""
    return f"released kubelets do not start with option {name}; replay follows its KEP"


def _strategy(name: str, text: str) -> str:
    if name == numa_allocation_strategy.OPTION:
        return numa_allocation_strategy.read_value(text)
    return name if parse_bool(name, text) else numa_allocation_strategy.NONE


def _check_available(name: str, gates: Gates) -> None:
    """Source: policy_options.go:CheckPolicyOptionAvailable. No option of today's versions is alpha."""
    level = gates.topology_option_levels.get(name)
    if level is None:
        raise InvalidOption(f"unknown Topology Manager Policy option: {quoted(name)}")
    if level == "beta" and not gates.topology_beta_options:
        level_words = "Topology Manager Policy Beta-level Options"
        level_words = level_words.lower() if gates.lower_case_levels else level_words
        raise InvalidOption(f"{level_words} not enabled, but option {quoted(name)} provided")


def _max_numa_nodes(name: str, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise InvalidOption(
            f"unable to convert policy option to integer {quoted(name)}: "
            f"strconv.Atoi: parsing {quoted(text)}: invalid syntax"
        )
    if int(text) < DEFAULT_MAX_NUMA_NODES:
        raise InvalidOption(f"the minimum value of {quoted(name)} should not be less than {DEFAULT_MAX_NUMA_NODES}")
    return int(text)
