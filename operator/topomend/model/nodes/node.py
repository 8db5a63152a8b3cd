"""Nodes as the scheduler reads them: with labels, taints and totals. Field names and values are those of core/v1."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from topomend.model.quantity import MilliQuantity

HOSTNAME_LABEL = "kubernetes.io/hostname"
"""The node label by which a pod's node affinity names a node."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True)
class Node:
    """A Node. ``capacity`` and ``allocatable`` are in thousandths; ``ready`` is its Ready condition.

    ``by_claim`` are the extended resources that a DeviceClass maps: the scheduler turns a request for one into a claim
    where the node has none of it. ``strict_groups`` is whether it supports ``supplementalGroupsPolicy`` Strict
    (``status.features``). ``version`` is its resourceVersion, and ``used`` what the pods on it and those assumed there
    take of its totals, None where that is not known; a node that differs in nothing else is the same node.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, MilliQuantity] = field(default_factory=dict)
    ready: bool = True
    capacity: Mapping[str, MilliQuantity] = field(default_factory=dict)
    by_claim: frozenset[str] = frozenset()
    strict_groups: bool = False
    version: str = field(default="", compare=False)
    used: Mapping[str, MilliQuantity] | None = field(default=None, compare=False)
