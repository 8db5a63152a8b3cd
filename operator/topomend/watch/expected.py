"""What nodes are expected to hold: how pods take their places there in the view, and how these become free again.

What happened that they do so is told by ``events``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from topomend.model.cluster import WatchedPod
from topomend.model.pod import Pod
from topomend.replay.admission import admit
from topomend.watch.view import ClusterView, OnItsWay, PodKey, excluding, including, is_newer


def after_end(view: ClusterView, pod: WatchedPod, now: float) -> ClusterView:
    """A pod has ended: what its node published before that shows what it held."""
    key, publication = (pod.namespace, pod.name), view.publications.get(pod.node)
    if publication is None or key not in publication.shown or not is_newer(pod.version, publication.confirmed):
        return view
    return with_ended(view, pod.node, {**publication.ended, key: now})


def with_ended(view: ClusterView, name: str, ended: Mapping[PodKey, float]) -> ClusterView:
    """These are the pods that have ended since the node last published, and when that was seen."""
    publication = replace(view.publications[name], ended=ended)
    return expecting(replace(view, publications=including(view.publications, name, publication)), (name,))


def after_binding(view: ClusterView, key: PodKey, pod: WatchedPod) -> ClusterView:
    """A scheduler has chosen: the other nodes' places are free again, and the chosen one's is taken."""
    publication = view.publications.get(pod.node)
    if publication is None or key in publication.shown:
        return off_its_way(view, key)
    if key not in view.on_their_way and admit(publication.expected, pod.pod)[1] == publication.expected:
        return view  # a pod that holds nothing exclusively takes no place
    return on_its_way(view, key, OnItsWay(pod.pod, (pod.node,)))


def on_its_way(view: ClusterView, key: PodKey, going: OnItsWay) -> ClusterView:
    """The pod's place is taken on each node that it may go to."""
    before = view.on_their_way.get(key)
    if before == going:
        return view
    touched = set(going.nodes) | set(before.nodes if before else ())
    return expecting(replace(view, on_their_way=including(view.on_their_way, key, going)), touched)


def off_its_way(view: ClusterView, key: PodKey) -> ClusterView:
    """Its place is free again, where it had one."""
    going = view.on_their_way.get(key)
    if going is None:
        return view
    return expecting(replace(view, on_their_way=excluding(view.on_their_way, key)), going.nodes)


def expecting(view: ClusterView, names: Iterable[str]) -> ClusterView:
    """The view in which the named nodes know the pods that are coming to them."""
    publications = dict(view.publications)
    for name in names:
        if name in publications:
            publications[name] = replace(publications[name], coming=_coming(view, name))
    return replace(view, publications=publications)


def _coming(view: ClusterView, name: str) -> tuple[Pod, ...]:
    shown = view.publications[name].shown
    return tuple(going.pod for key, going in view.on_their_way.items() if name in going.nodes and key not in shown)
