"""The view of the cluster that decisions are taken from, as one frozen value.

A published state is always a little older than its node. What the view takes from it are the pods that have ended
since; what it adds are those that are on their way: released by us, or bound by a scheduler, and not in the publication
yet. ``Publication.expected`` is the node's state with those pods admitted by replay, so that two pods are never sent to
one hole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from topomend.model.cluster import Node, WatchedPod
from topomend.model.node_state import NodeState, emptied
from topomend.model.pod import Pod
from topomend.model.relaunch import Relaunch
from topomend.replay.admission import admit, release
from topomend.replay.identity_cache import IdentityCache

PodKey = tuple[str, str]
"""Namespace and name."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Publication:
    """What a node's agent published. ``version`` is the object's resourceVersion.

    ``ended`` are the pods that ``state`` shows and that have ended since, with when that was seen, in seconds;
    ``assumed_pods`` are those on their way to the node that it does not show. ``problem`` says why the state is not
    to be relied on, empty where it is. ``confirmed`` is the resourceVersion at which the agent last wrote, be it the
    same state with a new ``heartbeat``, which was then ``heard`` (in seconds); agents without one leave it empty.
    """

    state: NodeState
    version: str
    ended: Mapping[PodKey, float] = field(default_factory=dict)
    assumed_pods: tuple[Pod, ...] = ()
    problem: str = ""
    confirmed: str = ""
    heartbeat: str = ""
    heard: float = 0.0

    @property
    def shown(self) -> set[PodKey]:
        """The pods that the node holds as far as is known."""
        return {(pod.namespace, pod.name) for pod in self.state.pods} - self.ended.keys()

    @cached_property
    def remaining(self) -> NodeState:
        """``state`` without the pods that have ended."""
        state = self.state
        for key in self.ended:
            state = _ending(state, key)
        return state

    @cached_property
    def state_with_assumed(self) -> NodeState:
        """What is left, with the pods that are coming, worked out when it is asked for: many events pass between two
        decisions."""
        state = self.remaining
        for pod in self.assumed_pods:
            state = _after(state, pod)
        return state


@dataclass(frozen=True)
class AssumedPod:
    """A pod that will be, or has just been, admitted on one of ``nodes``. ``expires`` None is: not by time.

    ``departed`` is whether it left the watch on pods that do not run: it runs now, or is gone.
    """

    pod: Pod
    nodes: tuple[str, ...]
    expires: float | None = None
    departed: bool = False


@dataclass(frozen=True)
class Refusal:
    """A failed pod as it was first seen: ``version`` is its resourceVersion then, ``seen`` the time in seconds."""

    pod: WatchedPod
    version: str
    seen: float


@dataclass(frozen=True)
class ReplayMismatches:
    """A node whose kubelet refused, one after another, these pods (uids) that replay admits; ``since`` the last one."""

    pods: frozenset[str]
    since: float


@dataclass(frozen=True)
class Snapshot:
    """Everything known of the cluster. ``refused`` is by uid; ``unreadable`` says what is wrong with an object.

    ``gated`` are the pods that wait behind one of our gates, ``gated_since`` when each was first seen so, in seconds;
    ``relaunches`` are the records that have not ended.
    ``mismatches`` are about nodes whose kubelets decided otherwise than replay.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    publications: Mapping[str, Publication] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    gated: Mapping[PodKey, WatchedPod] = field(default_factory=dict)
    gated_since: Mapping[PodKey, float] = field(default_factory=dict)
    relaunches: Mapping[PodKey, Relaunch] = field(default_factory=dict)
    assumed: Mapping[PodKey, AssumedPod] = field(default_factory=dict)
    mismatches: Mapping[str, ReplayMismatches] = field(default_factory=dict)

    def why_unknown(self, node: str) -> str:
        """Why the node's state is not known or not to be relied on, in one line; empty where it is known."""
        publication = self.publications.get(node)
        if publication is None:
            return self.unreadable.get(node, "no agent publishes its state")
        return publication.problem


_successors: IdentityCache[NodeState, dict[int, tuple[Pod, NodeState]]] = IdentityCache(dict)
"""A state after a pod, by the pod's id: the pods that came before another one are not admitted again for it."""


def _after(state: NodeState, pod: Pod) -> NodeState:
    successors = _successors.of(state)
    known = successors.get(id(pod))
    if known is None:
        admitted = admit(state, pod)[1]
        if admitted is state:
            return state  # remembering that would keep the state alive for ever
        known = successors[id(pod)] = (pod, admitted)
    return known[1]


_remains: IdentityCache[NodeState, dict[PodKey, NodeState]] = IdentityCache(dict)
"""A state after a pod's end: always the same object, as what is worked out for a state is kept by identity."""


def _ending(state: NodeState, key: PodKey) -> NodeState:
    remains = _remains.of(state)
    if key not in remains:
        remains[key] = release(state, *key)
    return remains[key]


def topology_changed(before: Snapshot, after: Snapshot) -> bool:
    """Whether a node came, went or changed in more than in what its pods hold."""
    if before.nodes != after.nodes or before.publications.keys() != after.publications.keys():
        return True
    pairs = ((each, after.publications[name]) for name, each in before.publications.items())
    return any(
        old is not new and (bool(old.problem) != bool(new.problem) or emptied(old.state) != emptied(new.state))
        for old, new in pairs
    )


def is_newer(version: str, other: str) -> bool:
    """Whether an object was written later than another, by their resourceVersions.

    Within a kind they are comparable by contract (KEP-5504); across kinds because one etcd counts one revision.
    Versions that are no numbers are newer when they differ.
    """
    if version.isdecimal() and other.isdecimal():
        return int(version) > int(other)
    return version != other


def including(mapping: Mapping[_Key, _Value], key: _Key, value: _Value) -> Mapping[_Key, _Value]:
    """The mapping with this in it: the same object where it is already."""
    return mapping if mapping.get(key) == value else {**mapping, key: value}


def excluding(mapping: Mapping[_Key, _Value], key: _Key) -> Mapping[_Key, _Value]:
    """The mapping without this key: the same object where it has none."""
    return {each: value for each, value in mapping.items() if each != key} if key in mapping else mapping
