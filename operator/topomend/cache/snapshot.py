"""The operator's picture of the cluster, as one frozen value (kube-scheduler: internal/cache/snapshot.go).

A published state is always a little older than its node. The snapshot removes the pods that have ended since, and adds
the assumed ones: ungated by the operator or bound by a scheduler, and not published yet.
``Publication.state_with_assumed`` is the node's state with those pods admitted by replay, so that no two pods are sent
to the same free CPUs. Owns the data. Leaves changes to ``changes`` and decisions to ``decide``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState, emptied
from topomend.replay.effort import UNLIMITED, Effort

if TYPE_CHECKING:  # what a command that asks for nodes alone does without
    from topomend.cache.entries import NodeTotals, Promise, Refusal, ReplayMismatches, SetAside, UnboundPod
    from topomend.model.pods.pod import Pod
    from topomend.model.pods.scheduling import WatchedPod
    from topomend.model.relaunch_record import Relaunch

PodKey = tuple[str, str]
"""Namespace and name."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


MAX_LATER_STATES = 256
"""How many states are remembered that follow a published one: more than pods are ever assumed on one node."""


class LaterStates:
    """States that follow a published one: with pods admitted, and without pods that have ended.

    Each is the same object each time, for a state keeps what is worked out of it; and a pod that was assumed earlier is
    not admitted again for a later one. Several threads may use it. Admission is imported where a state is worked out:
    who only shows what is published does without.
    """

    __slots__ = ("_states",)

    def __init__(self) -> None:
        # Whatever has its identity in a key is in the value too, so that no other object can get that identity.
        self._states: dict[tuple[int, int | PodKey], tuple[NodeState, Pod | None, NodeState]] = {}

    def with_pod(self, state: NodeState, pod: "Pod", effort: Effort) -> NodeState:
        """The state after ``pod`` was admitted, or refused. Raises Overspent."""
        known = self._states.get((id(state), id(pod)))
        if known:
            return known[2]
        from topomend.replay.admission import admit, may_allocate  # noqa: PLC0415

        if not may_allocate(state, pod):
            return state  # hundreds of such pods may be assumed on a node
        return self._remember((id(state), id(pod)), state, pod, admit(state, pod, effort)[1])

    def without_pod(self, state: NodeState, key: PodKey) -> NodeState:
        """The state after the pod has ended."""
        known = self._states.get((id(state), key))
        if known:
            return known[2]
        from topomend.replay.admission import release  # noqa: PLC0415

        return self._remember((id(state), key), state, None, release(state, *key))

    def _remember(
        self, key: tuple[int, int | PodKey], state: NodeState, pod: "Pod | None", following: NodeState
    ) -> NodeState:
        if len(self._states) >= MAX_LATER_STATES:
            self._states.clear()
        self._states[key] = state, pod, following
        return following


@dataclass(frozen=True)
class Publication:
    """What a node's agent published. ``version`` is the object's resourceVersion.

    ``ended``: the pods in ``state`` that have ended, each with the time in seconds that was seen.
    ``assumed_pods``: the pods assumed on the node that are not in ``state``. ``agent_problem``: why the agent does not
    vouch for the state, or that it is silent. ``distrust``: why the operator does not believe it. ``confirmed``: the
    resourceVersion of the agent's last write, which may be the same state with a new ``heartbeat``; that was ``heard``
    at this time in seconds. Agents without one leave it empty.
    """

    state: NodeState
    version: str
    ended: Mapping[PodKey, float] = field(default_factory=dict)
    assumed_pods: "tuple[Pod, ...]" = ()
    agent_problem: str = ""
    confirmed: str = ""
    heartbeat: str = ""
    heard: float = 0.0
    distrust: str = ""
    later: LaterStates = field(default_factory=LaterStates, compare=False, repr=False)

    @property
    def problem(self) -> str:
        """Why the state cannot be relied on, in one line; empty where it can."""
        return self.agent_problem or self.distrust

    @cached_property
    def pod_names(self) -> frozenset[str]:
        """The names of the pods that ``state_with_assumed`` may hold, in any namespace."""
        names = self.state.pod_names
        return names.union(pod.name for pod in self.assumed_pods) if self.assumed_pods else names

    @property
    def shown(self) -> set[PodKey]:
        """The pods that the node holds according to its agent, without those that have ended."""
        return {(pod.namespace, pod.name) for pod in self.state.pods} - self.ended.keys()

    def shows(self, key: PodKey, uid: str) -> bool:
        """Whether the pod is one of ``shown``. One of its name with another uid is another pod, such as the one before
        it that was deleted by force; an empty uid, on either side, matches any."""
        if key in self.ended or key[1] not in self.state.pod_names:
            return False
        return any(
            (pod.namespace, pod.name) == key and (pod.uid == uid or not pod.uid or not uid) for pod in self.state.pods
        )

    def is_of(self, version: str) -> bool:
        """Whether the agent's last write has this resourceVersion; an empty one is never known."""
        return bool(version) and self.confirmed == version

    def is_same_room(self, other: "Publication") -> bool:
        """Whether a pod finds the same room by both: they differ in no more than that the agent confirmed its state."""
        if self.state is not other.state or self.problem != other.problem:
            return False
        return self.ended == other.ended and self.assumed_pods == other.assumed_pods

    @cached_property
    def remaining(self) -> NodeState:
        """``state`` without the pods that have ended."""
        state = self.state
        for key in self.ended:
            state = self.later.without_pod(state, key)
        return state

    def state_with_assumed(self, effort: Effort = UNLIMITED) -> NodeState:
        """``remaining`` with the assumed pods admitted. Worked out once for all decisions. Raises Overspent."""
        state = self.remaining
        for pod in self.assumed_pods:
            state = self.later.with_pod(state, pod, effort)
        return state


class AssumedPod(NamedTuple):
    """A pod that is about to be admitted on one of ``nodes``, or just was.

    ``expires`` is when the assumption ends by itself, in seconds; None is never. ``departed``: the pod left the watch
    on pods that do not run, so it runs or is gone. ``displaces``: kube-scheduler evicts others for it, or may.
    ``nominated``: it keeps totals of the pod's one node free meanwhile. ``promised``: no such pod exists, it stands for
    one that is to come. ``static``: its kubelet runs it from a file, and publishes it by another uid.
    """

    pod: "Pod"
    nodes: tuple[str, ...]
    expires: float | None = None
    departed: bool = False
    displaces: bool = False
    nominated: bool = False
    promised: bool = False
    static: bool = False

    @property
    def published_uid(self) -> str:
        """The uid by which its node's agent knows it; empty where that is not known."""
        return "" if self.static else self.pod.uid

    @property
    def awaits_binding(self) -> bool:
        """Whether no scheduler has bound it yet."""
        return self.expires is not None and not self.departed


@dataclass(frozen=True)
class Snapshot:
    """The cluster as the operator knows it.

    ``unreadable``: by node, the problem of its published object. ``refused``: by uid. ``gated``: the pods with a gate
    of the operator; ``gated_since``: the time in seconds at which the operator first saw each one gated.
    ``relaunches``: the open records. ``mismatches``: by node, the refusals that replay did not predict. ``unbound``:
    ungated pods that the scheduler cannot bind, and those that have the operator's finalizer since. ``set_aside``: by
    node, those whose replay took too long. ``by_claim``: the extended resources that a DeviceClass maps; each of
    ``nodes`` has them too. ``departures``: how many pods have ceased to be refused or gated so far. ``totals``: those
    of nodes whose pods were listed, by node; each of ``nodes`` has the sum, with the pods assumed there. ``promises``:
    the places held for workloads of Kueue, by namespace and name.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    publications: Mapping[str, Publication] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    refused: "Mapping[str, Refusal]" = field(default_factory=dict)
    gated: "Mapping[PodKey, WatchedPod]" = field(default_factory=dict)
    gated_since: Mapping[PodKey, float] = field(default_factory=dict)
    relaunches: "Mapping[PodKey, Relaunch]" = field(default_factory=dict)
    assumed: Mapping[PodKey, AssumedPod] = field(default_factory=dict)
    mismatches: "Mapping[str, ReplayMismatches]" = field(default_factory=dict)
    unbound: "Mapping[PodKey, UnboundPod]" = field(default_factory=dict)
    set_aside: "Mapping[str, SetAside]" = field(default_factory=dict)
    by_claim: frozenset[str] = frozenset()
    departures: int = 0
    totals: "Mapping[str, NodeTotals]" = field(default_factory=dict)
    promises: "Mapping[PodKey, Promise]" = field(default_factory=dict)

    def has_agent(self, node: str) -> bool:
        """Whether an agent has published for the node, or begun to, whatever that is worth."""
        return node in self.publications or node in self.unreadable

    def why_unknown(self, node: str) -> str:
        """Why the node's state is not known or not to be relied on, in one line; empty where it is known."""
        publication = self.publications.get(node)
        if publication is None:
            return self.unreadable.get(node, "no agent publishes its state")
        return publication.problem


def topology_changed(before: Snapshot, after: Snapshot) -> bool:
    """Whether a node was added, removed, or changed in more than its allocations."""
    if before.nodes != after.nodes or before.publications.keys() != after.publications.keys():
        return True
    pairs = ((publication, after.publications[name]) for name, publication in before.publications.items())
    return any(
        old is not new and (bool(old.problem) != bool(new.problem) or emptied(old.state) != emptied(new.state))
        for old, new in pairs
    )


def replaced(before: Mapping[_Key, object], after: Mapping[_Key, object]) -> set[_Key]:
    """The keys whose values are not the same object in both mappings."""
    if before is after:
        return set()
    new = {key for key, value in after.items() if before.get(key) is not value}
    return new | (before.keys() - after.keys())


def is_newer(version: str, other: str) -> bool:
    """Whether an object was written later than another, by their resourceVersions.

    Within a kind they are comparable by contract (KEP-5504); across kinds because one etcd counts one revision.
    Versions that are no numbers are newer when they differ.
    """
    if version.isdecimal() and other.isdecimal():
        return int(version) > int(other)
    return version != other


class _Draft(dict[_Key, _Value]):
    """A copy of a mapping, to be changed in place while it is ``open``: until then nobody else sees it."""

    def __init__(self, original: Mapping[_Key, _Value]) -> None:
        super().__init__(original)
        self.original, self.open, self.changed = original, True, False

    def close(self) -> Mapping[_Key, _Value]:
        """The mapping that it has become; the original where nothing has changed."""
        original, self.open, self.original = self.original, False, {}
        return self if self.changed else original


_DRAFTED = ("refused", "gated", "gated_since", "unbound", "assumed", "relaunches")
"""The mappings that may have thousands of entries, of which a change concerns one."""


def in_place(snapshot: Snapshot, change: Callable[[Snapshot], Snapshot]) -> Snapshot:
    """The snapshot after ``change``, which changes many pods: their mappings are copied once and not for each pod."""
    drafts: dict[str, Any] = {name: _Draft(getattr(snapshot, name)) for name in _DRAFTED}
    changed = change(replace(snapshot, **drafts))
    closed: dict[str, Any] = {name: _closed(getattr(changed, name)) for name in _DRAFTED}
    return replace(changed, **closed)


def _closed(mapping: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    return mapping.close() if isinstance(mapping, _Draft) and mapping.open else mapping


def including(mapping: Mapping[_Key, _Value], key: _Key, value: _Value) -> Mapping[_Key, _Value]:
    """The mapping with this entry; the same object where the entry is already there."""
    if mapping.get(key) == value:
        return mapping
    if isinstance(mapping, _Draft) and mapping.open:
        mapping[key], mapping.changed = value, True
        return mapping
    return {**mapping, key: value}


def excluding(mapping: Mapping[_Key, _Value], key: _Key) -> Mapping[_Key, _Value]:
    """The mapping without this key; the same object where the key is not there."""
    if key not in mapping:
        return mapping
    if isinstance(mapping, _Draft) and mapping.open:
        del mapping[key]
        mapping.changed = True
        return mapping
    rest = dict(mapping)
    del rest[key]
    return rest
