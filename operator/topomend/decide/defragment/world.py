"""The cluster as it is at one moment of a simulation: with pods moved, and with nodes that take none.

Owns the next snapshot. Leaves who is moved to ``search``.
"""

from collections.abc import Iterable
from dataclasses import replace

from topomend.alignment.requested import aligned_numa_nodes
from topomend.cache.snapshot import Publication, Snapshot
from topomend.decide.defragment.moves import Place
from topomend.decide.diagnosis.totals import Requests
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, usage_of
from topomend.replay.admission import admit, release
from topomend.replay.effort import Effort


def settled(snapshot: Snapshot, effort: Effort) -> Snapshot:
    """The cluster with those pods in the nodes' states that are assumed there, and without those that have ended."""
    known = {
        name: Publication(publication.state_with_assumed(effort), publication.version)
        for name, publication in snapshot.publications.items()
        if not publication.problem
    }
    return replace(snapshot, publications={**snapshot.publications, **known})


def _changed(world: Snapshot, node: str, state: NodeState, used: Requests | None) -> Snapshot:
    changed = replace(world.nodes[node], used=used)
    publications = {**world.publications, node: Publication(state, "")}
    return replace(world, nodes={**world.nodes, node: changed}, publications=publications)


def without(world: Snapshot, node: str, pod: Pod) -> Snapshot:
    """The cluster once the pod has ended on its node."""
    state = release(world.publications[node].state, pod.namespace, pod.name)
    return _changed(world, node, state, _used(world, node, usage_of(pod), -1))


def with_pod(world: Snapshot, node: str, pod: Pod, effort: Effort) -> Snapshot | None:
    """The cluster with the pod on the node, whose kubelet admits it; None where the node's totals are not known."""
    used = _used(world, node, usage_of(pod), 1)
    if used is None:
        return None
    _, after = admit(world.publications[node].state, pod, effort)
    return _changed(world, node, after, used)


def with_cordoned(world: Snapshot, names: Iterable[str]) -> Snapshot:
    """The cluster in which the scheduler uses none of these nodes."""
    nodes = {name: replace(world.nodes[name], unschedulable=True) for name in names}
    return replace(world, nodes={**world.nodes, **nodes})


def _used(world: Snapshot, node: str, usage: Requests, sign: int) -> Requests | None:
    used = world.nodes[node].used
    return None if used is None else {**used, **{name: used.get(name, 0) + sign * usage[name] for name in usage}}


def place_of(world: Snapshot, node: str, pod: Pod) -> Place:
    """Where the pod, which is on the node, has what it holds exclusively."""
    return Place(node, aligned_numa_nodes(world.publications[node].state, pod))
