"""What nodes are expected to hold: how pods take their places there in the view, and how these become free again.

What happened that they do so is told by ``events``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from topomend.cache.snapshot import AssumedPod, PodKey, Snapshot, excluding, including, is_newer
from topomend.model.cluster import WatchedPod
from topomend.model.pod import Pod
from topomend.replay.admission import admit


def after_end(snapshot: Snapshot, pod: WatchedPod, now: float) -> Snapshot:
    """A pod has ended: what its node published before that shows what it held."""
    key, publication = (pod.namespace, pod.name), snapshot.publications.get(pod.node)
    if publication is None or key not in publication.shown or not is_newer(pod.version, publication.confirmed):
        return snapshot
    return with_ended(snapshot, pod.node, {**publication.ended, key: now})


def with_ended(snapshot: Snapshot, name: str, ended: Mapping[PodKey, float]) -> Snapshot:
    """These are the pods that have ended since the node last published, and when that was seen."""
    publication = replace(snapshot.publications[name], ended=ended)
    return with_assumed_pods(
        replace(snapshot, publications=including(snapshot.publications, name, publication)), (name,)
    )


def after_binding(snapshot: Snapshot, key: PodKey, pod: WatchedPod) -> Snapshot:
    """A scheduler has chosen: the other nodes' places are free again, and the chosen one's is taken."""
    publication = snapshot.publications.get(pod.node)
    if publication is None or key in publication.shown:
        return forget(snapshot, key)
    if (
        key not in snapshot.assumed
        and admit(publication.state_with_assumed, pod.pod)[1] == publication.state_with_assumed
    ):
        return snapshot  # a pod that holds nothing exclusively takes no place
    return assume(snapshot, key, AssumedPod(pod.pod, (pod.node,)))


def assume(snapshot: Snapshot, key: PodKey, assumed_pod: AssumedPod) -> Snapshot:
    """The pod's place is taken on each node that it may go to."""
    before = snapshot.assumed.get(key)
    if before == assumed_pod:
        return snapshot
    touched = set(assumed_pod.nodes) | set(before.nodes if before else ())
    return with_assumed_pods(replace(snapshot, assumed=including(snapshot.assumed, key, assumed_pod)), touched)


def forget(snapshot: Snapshot, key: PodKey) -> Snapshot:
    """Its place is free again, where it had one."""
    assumed_pod = snapshot.assumed.get(key)
    if assumed_pod is None:
        return snapshot
    return with_assumed_pods(replace(snapshot, assumed=excluding(snapshot.assumed, key)), assumed_pod.nodes)


def with_assumed_pods(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The view in which the named nodes know the pods that are coming to them."""
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
