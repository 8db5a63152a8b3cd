"""Changes of pods: what is watched of them, and what is assumed of them.

Owns which pods the snapshot keeps: refused, gated, unbound and assumed ones. Leaves to ``assumed`` how an assumed pod
counts against its nodes.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from topomend.cache.assumed import after_binding, after_end, after_nomination, assume, forget
from topomend.cache.changes.promises import after_arrival
from topomend.cache.changes.volumes import as_known
from topomend.cache.entries import Refusal, UnboundPod
from topomend.cache.snapshot import AssumedPod, PodKey, Snapshot, excluding, in_place, including, is_newer
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import WatchedPod, is_refusal
from topomend.wire.group import FIT_GATE, RELAUNCH_FINALIZER, RELAUNCH_GATE

UNPUBLISHED_SECONDS = 10.0
"""How long the operator waits for a node to publish a change of its pods: five times the worst delay of an agent.

Until then a pod that left the watch counts against its node, and a pod that ended does not.
"""

UNBOUND_SECONDS = 30.0
"""How long an ungated pod that no scheduler binds stays assumed."""

NOMINATED_SECONDS = 600.0
"""The same for one that waits for pods that its scheduler has evicted: longer than most grace periods."""

ENDED = ("Succeeded", "Failed")
"""The phases of pods whose containers have all ended for good. Their kubelet allocates their resources to other pods
(pkg/kubelet/kubelet_pods.go:filterOutInactivePods)."""


class PodUpdated(NamedTuple):
    """A pod was created or has changed."""

    pod: WatchedPod
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remember a refused or gated pod; assume a bound one on its node until it ends."""
        key = (self.pod.namespace, self.pod.name)
        pod = as_known(snapshot, key, self.pod)
        snapshot = after_arrival(snapshot, pod, self.now + UNBOUND_SECONDS)
        is_gated = RELAUNCH_GATE in pod.gates or FIT_GATE in pod.gates
        gated = snapshot.gated.get(key)
        departs = (gated is not None and not is_gated) or (pod.uid in snapshot.refused and not is_refusal(pod))
        since = snapshot.gated_since[key] if gated and gated.uid == pod.uid else self.now
        snapshot = replace(
            snapshot,
            refused=self._refused(snapshot.refused, pod),
            gated=including(snapshot.gated, key, pod) if is_gated else excluding(snapshot.gated, key),
            gated_since=including(snapshot.gated_since, key, since)
            if is_gated
            else excluding(snapshot.gated_since, key),
            unbound=self._unbound(snapshot.unbound, key),
            departures=snapshot.departures + departs,
        )
        if pod.phase == "Pending":
            if pod.node:
                return after_binding(snapshot, key, pod)
            if pod.gates:
                return snapshot
            return after_nomination(snapshot, key, pod, self.now + NOMINATED_SECONDS, self.now + UNBOUND_SECONDS)
        assumed_pod = snapshot.assumed.get(key)
        if assumed_pod and assumed_pod.pod.uid == pod.uid:
            snapshot = forget(snapshot, key)
        return after_end(snapshot, pod, self.now) if pod.phase in ENDED and not is_refusal(pod) else snapshot

    def _unbound(self, unbound: Mapping[PodKey, UnboundPod], key: PodKey) -> Mapping[PodKey, UnboundPod]:
        pod, before = self.pod, unbound.get(key)
        could_be_bound = pod.phase == "Pending" and not (pod.node or pod.gates or pod.deleting)
        if not (_is_held(pod) or (pod.narrowed and pod.unschedulable and could_be_bound)):
            return excluding(unbound, key)
        since = before.since if before and before.pod.uid == pod.uid else self.now
        return including(unbound, key, UnboundPod(pod, since))

    def _refused(self, refused: Mapping[str, Refusal], pod: WatchedPod) -> Mapping[str, Refusal]:
        if not is_refusal(pod):
            return excluding(refused, pod.uid)
        refusal = refused.get(pod.uid)
        if refusal is None:
            return including(refused, pod.uid, Refusal(pod, pod.version, self.now))
        # A deleted controller may orphan its failed pods. It had replaced them, so keep its name as their owner.
        pod = pod if pod.owner else replace(pod, owner=refusal.pod.owner)
        return including(refused, pod.uid, Refusal(pod, refusal.version, refusal.first_seen))


def _is_held(pod: WatchedPod) -> bool:
    """Whether a pod was claimed as an unbound one, and bound or deleted since: our finalizer is to be taken off."""
    is_claimed = RELAUNCH_FINALIZER in pod.finalizers and not (is_refusal(pod) or pod.owner)
    return is_claimed and (bool(pod.node) or pod.deleting)


class PodRemoved(NamedTuple):
    """A pod was deleted or started to run: the watch leaves out running pods, so it reports both alike."""

    namespace: str
    name: str
    uid: str
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it. An assumed pod stays assumed until a publication contains it, or for UNPUBLISHED_SECONDS."""
        key = (self.namespace, self.name)
        departures = snapshot.departures + (self.uid in snapshot.refused)
        snapshot = replace(snapshot, refused=excluding(snapshot.refused, self.uid), departures=departures)
        unbound = snapshot.unbound.get(key)
        if unbound and unbound.pod.uid == self.uid:
            snapshot = replace(snapshot, unbound=excluding(snapshot.unbound, key))
        gated, assumed_pod = snapshot.gated.get(key), snapshot.assumed.get(key)
        if gated and gated.uid == self.uid:
            snapshot = replace(
                snapshot,
                gated=excluding(snapshot.gated, key),
                gated_since=excluding(snapshot.gated_since, key),
                departures=snapshot.departures + 1,
            )
        if assumed_pod is None or assumed_pod.pod.uid != self.uid or assumed_pod.departed:
            return snapshot
        late = assumed_pod._replace(expires=self.now + UNPUBLISHED_SECONDS, departed=True)
        return replace(snapshot, assumed=including(snapshot.assumed, key, late))


class PodsListed(NamedTuple):
    """Every pod that neither runs nor succeeded. ``changed`` are those of which a watch has brought something newer."""

    pods: tuple[WatchedPod, ...]
    version: str
    now: float
    changed: frozenset[PodKey] = frozenset()

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remove pods that are not listed, and update the others."""
        listed = {pod.uid for pod in self.pods}
        watched = [
            *(refusal.pod for refusal in snapshot.refused.values()),
            *snapshot.gated.values(),
            *(unbound.pod for unbound in snapshot.unbound.values()),
        ]
        lasting = [
            (key, assumed.pod.uid)
            for key, assumed in snapshot.assumed.items()
            if assumed.expires is None or assumed.nominated
        ]
        older = [(pod.namespace, pod.name, pod.uid) for pod in watched if not is_newer(pod.version, self.version)]
        return in_place(snapshot, lambda draft: self._merged(draft, older, lasting, listed))

    def _merged(
        self,
        snapshot: Snapshot,
        older: Iterable[tuple[str, str, str]],
        lasting: Iterable[tuple[PodKey, str]],
        listed: Container[str],
    ) -> Snapshot:
        for namespace, name, uid in [*older, *((*key, uid) for key, uid in lasting)]:
            if uid not in listed and (namespace, name) not in self.changed:
                snapshot = PodRemoved(namespace, name, uid, self.now).apply_to(snapshot)
        for pod in self.pods:
            if (pod.namespace, pod.name) in self.changed:
                continue
            if pod.node or snapshot.gated.get((pod.namespace, pod.name)) is not pod:  # else nothing is new of it
                snapshot = PodUpdated(pod, self.now).apply_to(snapshot)
        return snapshot


class PodAssumed(NamedTuple):
    """A pod is about to be ungated for ``nodes``; ``pod.uid`` is empty for a replacement that is not created yet.

    ``displaces``: kube-scheduler is to evict others for it.
    """

    pod: Pod
    nodes: tuple[str, ...]
    now: float
    displaces: bool = False

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Count the pod against each of the nodes until a scheduler has bound it to one."""
        assumed_pod = AssumedPod(self.pod, self.nodes, self.now + UNBOUND_SECONDS, displaces=self.displaces)
        return assume(snapshot, (self.pod.namespace, self.pod.name), assumed_pod)


class PodForgotten(NamedTuple):
    """An assumed pod will not be bound to its nodes.

    With a ``uid`` it is that pod, or one that does not exist yet: a later pod of its name stays assumed.
    """

    namespace: str
    name: str
    uid: str = ""

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Take its assumption back."""
        assumed_pod = snapshot.assumed.get((self.namespace, self.name))
        if assumed_pod and self.uid and assumed_pod.pod.uid not in ("", self.uid):
            return snapshot
        return forget(snapshot, (self.namespace, self.name))
