"""Changes of what is known of volumes: on which nodes those of a gated or refused pod are.

Leaves reading them to its reporter.
"""

from dataclasses import replace
from typing import NamedTuple

from topomend.cache.snapshot import PodKey, Snapshot, including
from topomend.model.pods.scheduling import NodeSelectorTerm, WatchedPod


class PodVolumesRead(NamedTuple):
    """Which terms the volumes of a pod have; None where that is not known. The rest as in ``Placement``."""

    namespace: str
    name: str
    uid: str
    volumes: tuple[tuple[NodeSelectorTerm, ...], ...] | None

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remember it as long as the pod is gated or refused."""
        if refusal := snapshot.refused.get(self.uid):
            located = replace(refusal, pod=with_volumes(refusal.pod, self.volumes))
            return replace(snapshot, refused=including(snapshot.refused, self.uid, located))
        key = (self.namespace, self.name)
        gated = snapshot.gated.get(key)
        if gated is None or gated.uid != self.uid:
            return snapshot
        return replace(snapshot, gated=including(snapshot.gated, key, with_volumes(gated, self.volumes)))


def with_volumes(pod: WatchedPod, volumes: tuple[tuple[NodeSelectorTerm, ...], ...] | None) -> WatchedPod:
    """The pod with these terms of its volumes."""
    if pod.placement.volumes == volumes:
        return pod
    return replace(pod, placement=replace(pod.placement, volumes=volumes))


def as_known(snapshot: Snapshot, key: PodKey, pod: WatchedPod) -> WatchedPod:
    """A pod as a watch brought it, with what is known of its volumes: these stay the same for one pod."""
    if pod.placement.volumes is not None:
        return pod
    refusal, gated = snapshot.refused.get(pod.uid), snapshot.gated.get(key)
    known = refusal.pod if refusal else gated
    return pod if known is None or known.uid != pod.uid else with_volumes(pod, known.placement.volumes)
