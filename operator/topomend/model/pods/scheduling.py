"""Pods as the scheduler reads them: with tolerations, node affinity and owners. Nodes are in ``node``.

Field names and values are those of core/v1. Leaves the scheduler's rules, such as how a toleration matches a taint, to
``decide/diagnosis/filters.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topomend.model.pods.pod import Pod

REFUSAL_PREFIX = "Pod was rejected: "
"""The prefix of the message of every pod that a kubelet refused (pkg/kubelet/kubelet.go:HandlePodAdditions)."""


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
    """The nodes that a pod may go to. ``terms`` None is no required node affinity; otherwise one term must match.

    ``volumes`` has the terms of each volume that its claims are bound to and that not every node has: one of each must
    match. None is that these are not known, so that the pod may fit none of the nodes that all other rules allow.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] | None = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller that recreates a pod."""

    kind: str
    name: str
    uid: str
    api_version: str = ""

    @property
    def group(self) -> str:
        """The API group of its kind; empty for the core group."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A group of pods that are useful only together (gang scheduling).

    ``api_group`` is that of whoever defines it, ``name`` the group's in its namespace. ``size`` is how many pods it
    needs, where a pod of it says so; None where only the group's own object does.
    """

    api_group: str
    name: str
    size: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class WatchedPod:
    """A pod that does not run yet or has ended, with the facts on which the operator's decisions depend.

    - ``version``: its resourceVersion. ``pod``: the part that admission reads.
    - ``replaces``, ``record``: annotations of a replacement, the refused pod's uid and the record's name. A claimed
      refused pod has ``record`` too. ``attempt``: the number of the relaunch, 0 for a pod that is no replacement.
    - ``creator``: the name and groups of the user who created it, one a line; empty without a stamp.
    - ``generation``: the number of the pod's spec, from 1; 0 if the API server does not count.
    - ``released``: whether the operator has ungated it. ``narrowed``: whether it added a node affinity by that.
    - ``relaunch``, ``max_attempts``, ``name_policy``, ``relaunch_started`` and ``relaunch_pinned``: the user's
      annotations.
    - ``node_affinity``: as in the Pod object, because narrowing must keep every term.
    - ``claims``: the names of its PersistentVolumeClaims, the first ``wire.cluster.MAX_CLAIMS`` and one more.
    - ``scheduler_rules``: the fields of its spec by which the scheduler chooses nodes and which replay does not judge.
    - ``ran``: whether a container with restartPolicy Never, its own or its pod's, has started.
    - ``pinned``: whether its user wrote its ``node`` into it, so that no scheduler chose that.
    - ``priority``: that of its priority class; the scheduler tries the highest first.
    - ``preempts``: whether pods of lower priority may be evicted for it.
    - ``critical``: whether its priority class is one of those that the cluster itself needs.
    - ``unschedulable``: whether the scheduler has found no node for it, and preempts no pod for it.
    - ``asks_for_node``: whether the operator calls it unschedulable, so that cluster autoscalers add a node for it.
    - ``group``: the group of pods without which it is of no use.
    - ``workload``, ``pod_set``: the Kueue Workload that it is a pod of, where it says so, and its pod set there.
    - ``nominated``: the node whose totals the scheduler keeps free for it.
    - ``start_time``: when a kubelet first saw it. ``grace_seconds``: within which it ends, where it is being deleted.
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
    narrowed: bool = False
    name_policy: str = ""
    node_affinity: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    scheduler_rules: tuple[str, ...] = ()
    ran: bool = False
    relaunch_started: str = ""
    pinned: bool = False
    relaunch_pinned: str = ""
    unschedulable: bool = False
    asks_for_node: bool = False
    priority: int = 0
    critical: bool = False
    preempts: bool = True
    group: PodGroup | None = None
    nominated: str = ""
    start_time: str = ""
    grace_seconds: int = 0
    workload: str = ""
    pod_set: str = ""

    @property
    def order(self) -> tuple[int, str, str, str]:
        """The sort key of turns: priority before age (as in plugins/queuesort/priority_sort.go)."""
        return -self.priority, self.creation_time, self.namespace, self.name

    @property
    def has_device_claims(self) -> bool:
        """Whether it names ResourceClaims, by which the scheduler gives it devices."""
        return "resourceClaims" in self.scheduler_rules


def is_refusal(pod: WatchedPod) -> bool:
    """Whether a kubelet refused this pod, for any reason."""
    return pod.phase == "Failed" and pod.message.startswith(REFUSAL_PREFIX)
