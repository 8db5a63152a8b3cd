"""The cluster as scheduling reads it: nodes with labels and taints, refused pods with what they tolerate and select.

Field names and values are core/v1's own. How a toleration matches a taint is the scheduler's rule and stands in
``decide/filters.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topomend.model.pod import Pod
from topomend.model.quantity import MilliQuantity

HOSTNAME_LABEL = "kubernetes.io/hostname"
"""The node label by which a pod's node affinity names a node."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; an empty ``key`` with Exists matches every taint, an empty ``effect`` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a node selector term: ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements on labels and on fields, all of which must hold; a term with none matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True)
class Placement:
    """Where a pod may go. ``terms`` None is no required node affinity; otherwise one of them must match."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True)
class Node:
    """A Node. ``allocatable`` is in thousandths; ``ready`` is its Ready condition.

    ``version`` is its resourceVersion; a node that differs in nothing else is the same node.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, MilliQuantity] = field(default_factory=dict)
    ready: bool = True
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller that recreates a pod."""

    kind: str
    name: str
    uid: str
    api_version: str = ""


@dataclass(frozen=True)
class WatchedPod:
    """A pod that is not running yet or has ended, with what decides its fate.

    ``version`` is its resourceVersion. ``replaces`` and ``record`` are what a replacement made by us carries;
    ``record`` stands on a claimed pod too. ``attempt`` is 0 for a pod that is no replacement. ``pod`` is what
    admission sees. ``creator`` is who created it, a user's name and groups in a line each, empty where nobody stamped
    it; ``generation`` counts its specs from 1, 0 where the API server does not; ``released`` is whether one of them is
    the operator's. ``relaunch``, ``max_attempts`` and ``name_policy`` are what its user says of relaunches.
    ``node_affinity`` is written as in the Pod object: what narrows it keeps all of it.
    """

    namespace: str
    name: str
    uid: str
    version: str
    pod: Pod
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    node: str = ""
    owner: Owner | None = None
    mirror: bool = False
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    placement: Placement = field(default_factory=Placement)
    relaunch: str = ""
    max_attempts: int | None = None
    attempt: int = 0
    record: str = ""
    replaces: str = ""
    creation_time: str = ""
    creator: str = ""
    generation: int = 0
    released: bool = False
    name_policy: str = ""
    node_affinity: Mapping[str, Any] = field(default_factory=dict)
