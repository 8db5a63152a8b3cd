"""Assumed pods: capacity counted against a node before its agent reports the pod.

Owns how the snapshot assumes and forgets them. Leaves when that happens to ``changes``.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from topomend.cache.snapshot import AssumedPod, PodKey, Publication, Snapshot, excluding, including, is_newer
from topomend.model.nodes.node_state import NodeState
from topomend.model.quantity import MilliQuantity
from topomend.replay.gates import read_gates

if TYPE_CHECKING:
    from topomend.cache.entries import NodeTotals
    from topomend.model.pods.scheduling import WatchedPod


def after_end(snapshot: Snapshot, pod: "WatchedPod", now: float) -> Snapshot:
    """A pod has ended: the node's publication still contains it where that is older, or its kubelet keeps it."""
    key, publication = (pod.namespace, pod.name), snapshot.publications.get(pod.node)
    if publication is None or key not in publication.shown:
        return snapshot
    is_kept = _keeps_ended(publication.state) and pod.uid and _uid(publication.state, key) == pod.uid
    if not is_kept and not is_newer(pod.version, publication.confirmed):
        return snapshot
    return with_ended(snapshot, pod.node, {**publication.ended, key: math.inf if is_kept else now})


def kept_after(before: Publication | None, state: NodeState) -> Mapping[PodKey, float]:
    """Of the pods that had ended before a node published ``state``, those that its kubelet keeps for now."""
    if before is None or not before.ended or not _keeps_ended(state):
        return {}
    kept = {key: time for key, time in before.ended.items() if math.isinf(time)}
    # A later pod of the same name has another uid.
    return {key: time for key, time in kept.items() if _uid(state, key) == _uid(before.state, key)}


def _keeps_ended(state: NodeState) -> bool:
    """Whether the node may publish a pod long after its end: its kubelet purges it when it admits another."""
    return read_gates(state.kubelet).keeps_last_admitted


def _uid(state: NodeState, key: PodKey) -> str:
    """The uid of the pod of this name on the node; empty if it is not there or its agent does not know it."""
    return next((pod.uid for pod in state.pods if (pod.namespace, pod.name) == key), "")


def with_ended(snapshot: Snapshot, name: str, ended: Mapping[PodKey, float]) -> Snapshot:
    """The snapshot in which these pods of the node have ended, each with the time that was seen.

    Infinite for pods that count as ended for as long as their node publishes them.
    """
    publication = replace(snapshot.publications[name], ended=ended)
    return with_assumed_pods(
        replace(snapshot, publications=including(snapshot.publications, name, publication)), (name,)
    )


def after_binding(snapshot: Snapshot, key: PodKey, pod: "WatchedPod") -> Snapshot:
    """A scheduler has bound the pod: it is assumed on that node, and no longer on the others."""
    publication = snapshot.publications.get(pod.node)
    bound = AssumedPod(pod.pod, (pod.node,), static=pod.mirror)
    if publication is None or publication.shows(key, bound.published_uid):
        return forget(snapshot, key)
    # Imported here: who only reads what is published does without admission.
    from topomend.replay.admission import may_allocate  # noqa: PLC0415

    if key not in snapshot.assumed and not may_allocate(publication.state, pod.pod):
        return snapshot  # a pod without exclusive resources needs no assumption
    before = snapshot.assumed.get(key)
    displaces = before is not None and before.pod.uid == pod.uid and before.displaces
    return assume(snapshot, key, bound._replace(displaces=displaces))


def after_nomination(
    snapshot: Snapshot, key: PodKey, pod: "WatchedPod", nominated_until: float, until: float
) -> Snapshot:
    """A pod without a gate waits: where a scheduler has nominated it for a node, it is assumed there.

    That lasts until it is bound, or the scheduler takes the nomination back: then the assumption ends at ``until``.
    """
    before = snapshot.assumed.get(key)
    is_known = before is not None and before.nominated and before.pod.uid == pod.uid
    if pod.nominated:
        if before is not None and is_known and before.nodes == (pod.nominated,):
            return snapshot
        nominated = AssumedPod(pod.pod, (pod.nominated,), nominated_until, displaces=True, nominated=True)
        return assume(snapshot, key, nominated)
    return assume(snapshot, key, before._replace(expires=until, nominated=False)) if before and is_known else snapshot


def assume(snapshot: Snapshot, key: PodKey, assumed_pod: AssumedPod) -> Snapshot:
    """Count the pod against each node that it may be bound to."""
    before = snapshot.assumed.get(key)
    if before == assumed_pod:
        return snapshot
    names = set(assumed_pod.nodes) | set(before.nodes if before else ())
    return with_assumed_pods(replace(snapshot, assumed=including(snapshot.assumed, key, assumed_pod)), names)


def forget(snapshot: Snapshot, *keys: PodKey) -> Snapshot:
    """Take the assumptions of these pods back, where there are any."""
    names, assumed = set[str](), snapshot.assumed
    for key in keys:
        if assumed_pod := assumed.get(key):
            names.update(assumed_pod.nodes)
            assumed = excluding(assumed, key)
    return with_assumed_pods(replace(snapshot, assumed=assumed), names) if names else snapshot


def with_assumed_pods(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The snapshot in which the named nodes hold the pods assumed there, in their publications and in their totals."""
    publications, by_node = dict(snapshot.publications), _assumed_on(snapshot, names)
    for name, assumed in by_node.items():
        if name in publications:
            shows = publications[name].shows
            pods = tuple(each.pod for key, each in assumed if not shows(key, each.published_uid))
            publications[name] = replace(publications[name], assumed_pods=pods)
    return _with_used(replace(snapshot, publications=publications), by_node)


def with_used(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The snapshot in which the named nodes have what is used of their totals as far as that is known now."""
    return _with_used(snapshot, _assumed_on(snapshot, names))


def used_on(snapshot: Snapshot, name: str) -> Mapping[str, MilliQuantity] | None:
    """What is used of the node's totals: by its pods, and by those that are about to be bound to it."""
    return _used(snapshot.totals.get(name), _assumed_on(snapshot, (name,))[name])


_Assumed: TypeAlias = list[tuple[PodKey, AssumedPod]]


def _assumed_on(snapshot: Snapshot, names: Collection[str]) -> dict[str, _Assumed]:
    """The pods that are assumed on each of the named nodes: each pod is looked at once, for it may be on every node."""
    by_node: dict[str, _Assumed] = {name: [] for name in names}
    for key, assumed_pod in snapshot.assumed.items():
        for name in by_node.keys() & assumed_pod.nodes:
            by_node[name].append((key, assumed_pod))
    return by_node


def _with_used(snapshot: Snapshot, by_node: Mapping[str, _Assumed]) -> Snapshot:
    nodes = {name: snapshot.nodes[name] for name in by_node if name in snapshot.nodes}
    changed = {
        name: replace(node, used=used)
        for name, node in nodes.items()
        if (used := _used(snapshot.totals.get(name), by_node[name])) != node.used
    }
    return replace(snapshot, nodes={**snapshot.nodes, **changed}) if changed else snapshot


def _used(totals: "NodeTotals | None", assumed: _Assumed) -> Mapping[str, MilliQuantity] | None:
    if totals is None or totals.used is None:
        return None
    from topomend.model.pods.pod import sum_of, usage_of  # noqa: PLC0415  who counts no totals does without pods

    used = totals.used
    for _, assumed_pod in assumed:
        if assumed_pod.awaits_binding and assumed_pod.pod.uid not in totals.pending:
            used = sum_of(used, usage_of(assumed_pod.pod))
    return used
