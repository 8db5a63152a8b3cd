"""The changes that lead from one snapshot to the next: ``apply(snapshot, change) -> snapshot``.

A relist (``...Listed``) replaces every object of its kind, which repairs a gap in the watch; only objects written after
``version``, the list's resourceVersion, stay. A change without news returns an equal snapshot. Times are in seconds
of a monotonic clock. Owns the meaning of each change. Leaves reading objects to ``wire``.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from topomend.cache.assumed import after_binding, after_end, assume, forget, with_assumed_pods, with_ended
from topomend.cache.contradiction import contradiction
from topomend.cache.snapshot import (
    AssumedPod,
    PodKey,
    Publication,
    Refusal,
    ReplayMismatches,
    SetAside,
    Snapshot,
    UnboundPod,
    excluding,
    in_place,
    including,
    is_newer,
)
from topomend.model.cluster import Node, WatchedPod
from topomend.model.node_state import NodeState, emptied
from topomend.model.pod import Pod
from topomend.model.relaunch import Relaunch
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE

UNPUBLISHED_SECONDS = 10.0
"""How long the operator waits for a node to publish a change of its pods: five times the worst delay of an agent.

Until then a pod that left the watch counts against its node, and a pod that ended does not.
"""

MISMATCH_SECONDS = 600.0
"""How long a mismatch between a kubelet and replay counts."""

SILENT_SECONDS = 1800.0
"""An agent without a heartbeat for this long counts as silent: it has missed two (publish/publisher.py:
HEARTBEAT_SECONDS and a quarter)."""

SILENT = (
    "its agent has confirmed nothing for half an hour; check that the agent runs and that the node's clock is right"
)

ASIDE = "it is set aside for a while: replay of what its agent publishes takes too long"

ASIDE_SECONDS, LONGEST_ASIDE_SECONDS = 60.0, 3600.0
"""How long a node is set aside at first, twice as long each further time, and at most. Replay of a node costs its share
(``replay.effort``) each time. What it cost is forgotten after as long again as the longest."""

ENDED = ("Succeeded", "Failed")
"""The phases of pods whose containers have all ended for good. Their kubelet allocates their resources to other pods
(pkg/kubelet/kubelet_pods.go:filterOutInactivePods)."""

UNBOUND_SECONDS = 30.0
"""How long an ungated pod that no scheduler binds stays assumed."""

REFUSAL_PREFIX = "Pod was rejected: "
"""The prefix of the message of every pod that a kubelet refused (pkg/kubelet/kubelet.go:HandlePodAdditions)."""


class Change(Protocol):
    """Anything that changes the snapshot."""

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot after this."""


def apply(snapshot: Snapshot, change: Change) -> Snapshot:
    """The snapshot after ``change``."""
    return change.apply_to(snapshot)


def is_refusal(pod: WatchedPod) -> bool:
    """Whether a kubelet refused this pod, for any reason."""
    return pod.phase == "Failed" and pod.message.startswith(REFUSAL_PREFIX)


# Pods


@dataclass(frozen=True)
class PodUpdated:
    """A pod was created or has changed."""

    pod: WatchedPod
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remember a refused or gated pod; assume a bound one on its node until it ends."""
        pod, key = self.pod, (self.pod.namespace, self.pod.name)
        is_gated = RELAUNCH_GATE in pod.gates or FIT_GATE in pod.gates
        gated = snapshot.gated.get(key)
        since = snapshot.gated_since[key] if gated and gated.uid == pod.uid else self.now
        snapshot = replace(
            snapshot,
            refused=self._refused(snapshot.refused),
            gated=including(snapshot.gated, key, pod) if is_gated else excluding(snapshot.gated, key),
            gated_since=including(snapshot.gated_since, key, since)
            if is_gated
            else excluding(snapshot.gated_since, key),
            unbound=self._unbound(snapshot.unbound, key),
        )
        if pod.phase == "Pending":
            return after_binding(snapshot, key, pod) if pod.node else snapshot
        assumed_pod = snapshot.assumed.get(key)
        if assumed_pod and assumed_pod.pod.uid == pod.uid:
            snapshot = forget(snapshot, key)
        return after_end(snapshot, pod, self.now) if pod.phase in ENDED and not is_refusal(pod) else snapshot

    def _unbound(self, unbound: Mapping[PodKey, UnboundPod], key: PodKey) -> Mapping[PodKey, UnboundPod]:
        pod, before = self.pod, unbound.get(key)
        if not (pod.narrowed and pod.unschedulable and pod.phase == "Pending") or pod.node or pod.gates or pod.deleting:
            return excluding(unbound, key)
        since = before.since if before and before.pod.uid == pod.uid else self.now
        return including(unbound, key, UnboundPod(pod, since))

    def _refused(self, refused: Mapping[str, Refusal]) -> Mapping[str, Refusal]:
        if not is_refusal(self.pod):
            return excluding(refused, self.pod.uid)
        refusal = refused.get(self.pod.uid)
        if refusal is None:
            return including(refused, self.pod.uid, Refusal(self.pod, self.pod.version, self.now))
        # A deleted controller may orphan its failed pods. It had replaced them, so keep its name as their owner.
        pod = self.pod if self.pod.owner else replace(self.pod, owner=refusal.pod.owner)
        return including(refused, pod.uid, Refusal(pod, refusal.version, refusal.first_seen))


@dataclass(frozen=True)
class PodRemoved:
    """A pod was deleted or started to run: the watch leaves out running pods, so it reports both alike."""

    namespace: str
    name: str
    uid: str
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it. An assumed pod stays assumed until a publication contains it, or for UNPUBLISHED_SECONDS."""
        key = (self.namespace, self.name)
        snapshot = replace(snapshot, refused=excluding(snapshot.refused, self.uid))
        unbound = snapshot.unbound.get(key)
        if unbound and unbound.pod.uid == self.uid:
            snapshot = replace(snapshot, unbound=excluding(snapshot.unbound, key))
        gated, assumed_pod = snapshot.gated.get(key), snapshot.assumed.get(key)
        if gated and gated.uid == self.uid:
            snapshot = replace(
                snapshot, gated=excluding(snapshot.gated, key), gated_since=excluding(snapshot.gated_since, key)
            )
        if assumed_pod is None or assumed_pod.pod.uid != self.uid or assumed_pod.departed:
            return snapshot
        late = replace(assumed_pod, expires=self.now + UNPUBLISHED_SECONDS, departed=True)
        return replace(snapshot, assumed=including(snapshot.assumed, key, late))


@dataclass(frozen=True)
class PodsListed:
    """Every pod that neither runs nor succeeded."""

    pods: tuple[WatchedPod, ...]
    version: str
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remove pods that are not listed, and update the others."""
        listed = {pod.uid for pod in self.pods}
        watched = [
            *(refusal.pod for refusal in snapshot.refused.values()),
            *snapshot.gated.values(),
            *(unbound.pod for unbound in snapshot.unbound.values()),
        ]
        bound = [(key, assumed.pod.uid) for key, assumed in snapshot.assumed.items() if assumed.expires is None]
        older = [(pod.namespace, pod.name, pod.uid) for pod in watched if not is_newer(pod.version, self.version)]
        return in_place(snapshot, lambda draft: self._merged(draft, older, bound, listed))

    def _merged(
        self,
        snapshot: Snapshot,
        older: Iterable[tuple[str, str, str]],
        bound: Iterable[tuple[PodKey, str]],
        listed: Container[str],
    ) -> Snapshot:
        for namespace, name, uid in [*older, *((*key, uid) for key, uid in bound)]:
            if uid not in listed:
                snapshot = PodRemoved(namespace, name, uid, self.now).apply_to(snapshot)
        for pod in self.pods:
            snapshot = PodUpdated(pod, self.now).apply_to(snapshot)
        return snapshot


# Nodes and what their agents publish


@dataclass(frozen=True)
class NodeUpdated:
    """A node was created or has changed."""

    node: Node

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Replace the node, and compare what its agent published with it."""
        nodes = including(snapshot.nodes, self.node.name, replace(self.node, by_claim=snapshot.by_claim))
        return snapshot if nodes is snapshot.nodes else _compared(replace(snapshot, nodes=nodes), (self.node.name,))


@dataclass(frozen=True)
class NodeRemoved:
    """A node was deleted."""

    name: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it."""
        return replace(snapshot, nodes=excluding(snapshot.nodes, self.name))


@dataclass(frozen=True)
class NodesListed:
    """Every node."""

    nodes: tuple[Node, ...]
    version: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Replace all nodes, and compare what their agents published with those that changed.

        A node that has not changed stays the same object, for answers of nodes are remembered by node.
        """
        before = snapshot.nodes
        newer = {name: node for name, node in before.items() if is_newer(node.version, self.version)}
        listed = {node.name: replace(node, by_claim=snapshot.by_claim) for node in self.nodes} | newer
        nodes = {name: before[name] if before.get(name) == node else node for name, node in listed.items()}
        changed = [name for name, node in nodes.items() if before.get(name) is not node]
        if not changed and len(nodes) == len(before):
            return snapshot
        return _compared(replace(snapshot, nodes=nodes), changed)


@dataclass(frozen=True)
class DeviceClassesListed:
    """Every DeviceClass. ``by_claim`` are the extended resources that they map."""

    by_claim: frozenset[str]

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Have every node know them: answers of nodes are remembered by node."""
        if self.by_claim == snapshot.by_claim:
            return snapshot
        nodes = {name: replace(node, by_claim=self.by_claim) for name, node in snapshot.nodes.items()}
        return replace(snapshot, nodes=nodes, by_claim=self.by_claim)


def _compared(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """The snapshot in which the publications of the named nodes are believed, or not, by what their Nodes say."""
    publications = snapshot.publications
    for name in names:
        publication = publications.get(name)
        if publication is not None:
            distrust = _distrust(snapshot, publication.state)
            if distrust != publication.distrust:
                publications = including(publications, name, replace(publication, distrust=distrust))
    return snapshot if publications is snapshot.publications else replace(snapshot, publications=publications)


def _distrust(snapshot: Snapshot, state: NodeState) -> str:
    """Why the operator does not believe the state; empty where it does."""
    node, set_aside = snapshot.nodes.get(state.name), snapshot.set_aside.get(state.name)
    reason = contradiction(node, state) if node else ""
    return reason or (ASIDE if set_aside and set_aside.active else "")


@dataclass(frozen=True)
class Heartbeat:
    """When an agent last confirmed its publication.

    ``time`` is by the agent's clock (RFC 3339). ``age`` is how long ago that was, in seconds, if both clocks agree.
    ``now`` is when the operator read it.
    """

    time: str
    age: float
    now: float


@dataclass(frozen=True)
class Published:
    """A node's agent published a state. ``problem`` says why the state is unreliable, empty if it is not."""

    state: NodeState
    version: str
    problem: str = ""
    heartbeat: Heartbeat | None = None

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Replace the node's publication, and forget the assumed pods that it contains.

        A heartbeat without a new state keeps the publication, its version included.
        """
        name = self.state.name
        before = snapshot.publications.get(name)
        if before and not is_newer(self.version, before.confirmed or before.version):
            return snapshot
        heard, problem = self._heard(before), self.problem
        if self.heartbeat and not problem and heard + SILENT_SECONDS <= self.heartbeat.now:
            problem = SILENT
        time = self.heartbeat.time if self.heartbeat else ""
        if before and (problem, self.state) == (before.agent_problem, before.state):
            confirmed = replace(before, confirmed=self.version, heartbeat=time, heard=heard)
            snapshot = replace(snapshot, publications=including(snapshot.publications, name, confirmed))
            return with_ended(snapshot, name, {}) if before.ended else snapshot
        distrust = _distrust(snapshot, self.state)
        published = Publication(self.state, self.version, {}, (), problem, self.version, time, heard, distrust)
        shown = published.shown
        arrived = {key: pod for key, pod in snapshot.assumed.items() if name in pod.nodes and key in shown}
        if name in snapshot.mismatches and (arrived or (before and emptied(before.state) != emptied(self.state))):
            snapshot = replace(snapshot, mismatches=excluding(snapshot.mismatches, name))
        snapshot = replace(
            snapshot,
            publications=including(snapshot.publications, name, published),
            unreadable=excluding(snapshot.unreadable, name),
            assumed={key: pod for key, pod in snapshot.assumed.items() if key not in arrived},
        )
        return with_assumed_pods(snapshot, {name}.union(*(pod.nodes for pod in arrived.values())))

    def _heard(self, before: Publication | None) -> float:
        """When the last heartbeat was, by the operator's clock. Only the first one is dated by the agent's clock."""
        if self.heartbeat is None:
            return 0.0
        if before is None or not before.heartbeat:
            return self.heartbeat.now - max(0.0, self.heartbeat.age)
        return before.heard if before.heartbeat == self.heartbeat.time else self.heartbeat.now


@dataclass(frozen=True)
class Unreadable:
    """A node's published object is malformed."""

    name: str
    problem: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Record the problem, and forget the earlier publication."""
        return replace(
            snapshot,
            unreadable=including(snapshot.unreadable, self.name, self.problem),
            publications=excluding(snapshot.publications, self.name),
        )


@dataclass(frozen=True)
class Unpublished:
    """A node's published object was deleted."""

    name: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it."""
        return replace(
            snapshot,
            unreadable=excluding(snapshot.unreadable, self.name),
            publications=excluding(snapshot.publications, self.name),
        )


@dataclass(frozen=True)
class PublicationsListed:
    """Every published object, readable or not. ``known`` are the nodes of which the snapshot has this version."""

    publications: tuple[Published | Unreadable, ...]
    version: str
    known: frozenset[str] = frozenset()

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remove publications that are not listed, and update the others."""
        read = {change.name if isinstance(change, Unreadable) else change.state.name for change in self.publications}
        listed = self.known | read
        newer = {name for name, before in snapshot.publications.items() if is_newer(before.version, self.version)}
        for name in (snapshot.publications.keys() | snapshot.unreadable.keys()) - listed - newer:
            snapshot = Unpublished(name).apply_to(snapshot)
        for publication in self.publications:
            snapshot = publication.apply_to(snapshot)
        return snapshot


# Records


@dataclass(frozen=True)
class RelaunchUpdated:
    """A record was created or has changed."""

    relaunch: Relaunch

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Keep it while it is open."""
        key = (self.relaunch.namespace, self.relaunch.name)
        if not self.relaunch.is_open:
            return replace(snapshot, relaunches=excluding(snapshot.relaunches, key))
        return replace(snapshot, relaunches=including(snapshot.relaunches, key, self.relaunch))


@dataclass(frozen=True)
class RelaunchRemoved:
    """A record was deleted."""

    namespace: str
    name: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it."""
        return replace(snapshot, relaunches=excluding(snapshot.relaunches, (self.namespace, self.name)))


@dataclass(frozen=True)
class RelaunchesListed:
    """Every record."""

    relaunches: tuple[Relaunch, ...]
    version: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Replace all records."""
        newer = {key: record for key, record in snapshot.relaunches.items() if is_newer(record.version, self.version)}
        still_open = {(record.namespace, record.name): record for record in self.relaunches if record.is_open}
        return replace(snapshot, relaunches=still_open | newer)


# The operator's own decisions, and time


@dataclass(frozen=True)
class PodAssumed:
    """A pod is about to be ungated for ``nodes``; ``pod.uid`` is empty for a replacement that is not created yet."""

    pod: Pod
    nodes: tuple[str, ...]
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Count the pod against each of the nodes until a scheduler has bound it to one."""
        assumed_pod = AssumedPod(self.pod, self.nodes, self.now + UNBOUND_SECONDS)
        return assume(snapshot, (self.pod.namespace, self.pod.name), assumed_pod)


@dataclass(frozen=True)
class PodForgotten:
    """An assumed pod will not be bound to its nodes."""

    namespace: str
    name: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Take its assumption back."""
        return forget(snapshot, (self.namespace, self.name))


@dataclass(frozen=True)
class MismatchDetected:
    """A node's kubelet refused the pod of this uid, although replay of its published state admits it."""

    node: str
    uid: str
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Count it against the node until the node admits a pod as predicted, its topology changes, or it expires."""
        before = snapshot.mismatches.get(self.node)
        pods = before.pods if before else frozenset()
        if self.uid in pods:
            return snapshot
        return replace(
            snapshot,
            mismatches=including(snapshot.mismatches, self.node, ReplayMismatches(pods | {self.uid}, self.now)),
        )


@dataclass(frozen=True)
class ReplayOverspent:
    """Replay of a node took longer than its share."""

    node: str
    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """From the second time on set the node aside: its state counts as unknown, for longer each time."""
        before = snapshot.set_aside.get(self.node)
        if before and before.active:
            return snapshot
        times = before.times + 1 if before else 0
        seconds = min(ASIDE_SECONDS * 2.0 ** min(max(0, times - 1), 60), LONGEST_ASIDE_SECONDS)
        set_aside = including(snapshot.set_aside, self.node, SetAside(times, self.now + seconds, active=times > 0))
        return _compared(replace(snapshot, set_aside=set_aside), (self.node,))


@dataclass(frozen=True)
class TimePassed:
    """Time has passed."""

    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Expire assumptions, mismatches and nodes set aside; mark the publications of silent agents as unreliable."""
        snapshot = self._asked_again(snapshot)
        for key, assumed_pod in snapshot.assumed.items():
            if assumed_pod.expires is not None and assumed_pod.expires <= self.now:
                snapshot = forget(snapshot, key)
        for node, mismatch in snapshot.mismatches.items():
            if mismatch.since + MISMATCH_SECONDS <= self.now:
                snapshot = replace(snapshot, mismatches=excluding(snapshot.mismatches, node))
        with_ends = [(name, published) for name, published in snapshot.publications.items() if published.ended]
        for name, publication in with_ends:
            recent = {key: ended for key, ended in publication.ended.items() if ended + UNPUBLISHED_SECONDS > self.now}
            if len(recent) < len(publication.ended):
                snapshot = with_ended(snapshot, name, recent)
        silent = {
            name: replace(published, agent_problem=SILENT)
            for name, published in snapshot.publications.items()
            if published.heard + SILENT_SECONDS <= self.now and published.heartbeat and not published.agent_problem
        }
        return replace(snapshot, publications={**snapshot.publications, **silent}) if silent else snapshot

    def _asked_again(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot in which nodes that were set aside for long enough are believed again."""
        due = {name: aside for name, aside in snapshot.set_aside.items() if aside.until <= self.now}
        if not due:
            return snapshot
        recent = {
            name: replace(aside, active=False)
            for name, aside in due.items()
            if aside.times and self.now < aside.until + LONGEST_ASIDE_SECONDS
        }
        others = {name: aside for name, aside in snapshot.set_aside.items() if name not in due}
        if others | recent == snapshot.set_aside:
            return snapshot
        return _compared(replace(snapshot, set_aside=others | recent), due)
