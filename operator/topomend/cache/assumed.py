"""Assumed pods: capacity counted against a node before its agent reports the pod.

Owns how the snapshot assumes and forgets them. Leaves when that happens to ``changes``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from topomend.cache.snapshot import AssumedPod, PodKey, Publication, Snapshot, excluding, including, is_newer
from topomend.model.cluster import WatchedPod
from topomend.model.pod import Pod
from topomend.replay.admission import may_allocate


def after_end(snapshot: Snapshot, pod: WatchedPod, now: float) -> Snapshot:
    """A pod has ended: the node's publication still contains it where that is older, or its kubelet keeps it."""
    key, publication = (pod.namespace, pod.name), snapshot.publications.get(pod.node)
    if publication is None or key not in publication.shown:
        return snapshot
    is_kept = publication.keeps_ended and pod.uid and publication.uid_of(key) == pod.uid
    if not is_kept and not is_newer(pod.version, publication.confirmed):
        return snapshot
    return with_ended(snapshot, pod.node, {**publication.ended, key: math.inf if is_kept else now})


def kept_after(before: Publication | None, published: Publication) -> Mapping[PodKey, float]:
    """Of the pods that had ended before a node published again, those that its kubelet keeps for now."""
    if before is None or not published.keeps_ended:
        return {}
    return {key: time for key, time in before.ended.items() if math.isinf(time) and _is_same(key, before, published)}


def _is_same(key: PodKey, before: Publication, published: Publication) -> bool:
    """Whether both publications contain the same pod of this name, and not a later one."""
    return published.uid_of(key) == before.uid_of(key) != ""


def with_ended(snapshot: Snapshot, name: str, ended: Mapping[PodKey, float]) -> Snapshot:
    """The snapshot in which these pods of the node have ended, each with the time that was seen.

    Infinite for pods that count as ended for as long as their node publishes them.
    """
    publication = replace(snapshot.publications[name], ended=ended)
    return with_assumed_pods(
        replace(snapshot, publications=including(snapshot.publications, name, publication)), (name,)
    )


def after_binding(snapshot: Snapshot, key: PodKey, pod: WatchedPod) -> Snapshot:
    """A scheduler has bound the pod: it is assumed on that node, and no longer on the others."""
    publication = snapshot.publications.get(pod.node)
    if publication is None or key in publication.shown:
        return forget(snapshot, key)
    if key not in snapshot.assumed and not may_allocate(publication.state, pod.pod):
        return snapshot  # a pod without exclusive resources needs no assumption
    return assume(snapshot, key, AssumedPod(pod.pod, (pod.node,)))


def assume(snapshot: Snapshot, key: PodKey, assumed_pod: AssumedPod) -> Snapshot:
    """Count the pod against each node that it may be bound to."""
    before = snapshot.assumed.get(key)
    if before == assumed_pod:
        return snapshot
    names = set(assumed_pod.nodes) | set(before.nodes if before else ())
    return with_assumed_pods(replace(snapshot, assumed=including(snapshot.assumed, key, assumed_pod)), names)


def forget(snapshot: Snapshot, key: PodKey) -> Snapshot:
    """Take the pod's assumption back, where there is one."""
    assumed_pod = snapshot.assumed.get(key)
    if assumed_pod is None:
        return snapshot
    return with_assumed_pods(replace(snapshot, assumed=excluding(snapshot.assumed, key)), assumed_pod.nodes)


def with_assumed_pods(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The snapshot in which the publications of the named nodes hold the pods assumed there."""
    publications = dict(snapshot.publications)
    for name in names:
        if name in publications:
            publications[name] = replace(publications[name], assumed_pods=_assumed_pods(snapshot, name))
    return replace(snapshot, publications=publications)


def _assumed_pods(snapshot: Snapshot, name: str) -> tuple[Pod, ...]:
    shown = snapshot.publications[name].shown
    return tuple(
        assumed_pod.pod
        for key, assumed_pod in snapshot.assumed.items()
        if name in assumed_pod.nodes and key not in shown
    )
