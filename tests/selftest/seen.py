"""A node as the trials see it, for the tests of this room."""

from collections.abc import Iterable

from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.bound_pod import BoundPod
from topomend.replay.lifecycle.node_allocatable import node_allocatable
from topomend.selftest.cases import Case, Choice, choose
from topomend.selftest.compare import Prediction, Seen, predict
from topomend.selftest.manifest import pod_manifest
from topomend.wire.pods.bound_pod import read_bound_pod

OWN = "topomend-selftest-abcde"


def node_of(state: NodeState) -> Node:
    """The Node that a kubelet of this state publishes."""
    return Node(state.name, allocatable=node_allocatable(state))


def seen(state: NodeState, *pods: BoundPod, uids: Iterable[str] = ()) -> Seen:
    """The node in this state, with these pods on it."""
    return Seen(node_of(state), state, pods, frozenset(uids))


def choice_of(state: NodeState) -> Choice:
    """What is chosen where no pod takes anything of the totals but what the state has."""
    return choose(state, node_of(state), {})


def case_of(state: NodeState, name: str) -> Case:
    """The case of this name."""
    return next(case for case in choice_of(state).cases if case.name == name)


def predicted(state: NodeState, name: str) -> Prediction:
    """What replay says of the case of this name."""
    manifest = pod_manifest(case_of(state, name), node_of(state), OWN, "any")
    return predict(seen(state), read_bound_pod(manifest))
