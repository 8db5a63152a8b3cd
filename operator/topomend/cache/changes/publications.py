"""Changes of what agents publish: new states, heartbeats, unreadable and deleted objects."""

from dataclasses import replace
from typing import NamedTuple

from topomend.cache.assumed import kept_after, with_assumed_pods, with_ended
from topomend.cache.changes.trust import why_distrusted
from topomend.cache.snapshot import Publication, Snapshot, excluding, including, is_newer
from topomend.model.nodes.node_state import NodeState, emptied

SILENT_SECONDS = 1800.0
"""An agent without a heartbeat for this long counts as silent: it has missed two (publish/publisher.py:
HEARTBEAT_SECONDS and a quarter)."""

SILENT = (
    "its agent has confirmed nothing for half an hour; check that the agent runs and that the node's clock is right"
)


class Heartbeat(NamedTuple):
    """When an agent last confirmed its publication.

    ``time`` is by the agent's clock (RFC 3339). ``age`` is how long ago that was, in seconds, if both clocks agree.
    ``now`` is when the operator read it.
    """

    time: str
    age: float
    now: float


class Published(NamedTuple):
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
            return with_ended(snapshot, name, kept_after(before, self.state)) if before.ended else snapshot
        distrust = why_distrusted(snapshot, self.state)
        ended = kept_after(before, self.state)
        published = Publication(self.state, self.version, ended, (), problem, self.version, time, heard, distrust)
        if before and before.state is self.state:
            published = replace(published, later=before.later)
        arrived = {
            key: pod
            for key, pod in snapshot.assumed.items()
            if name in pod.nodes and published.shows(key, pod.published_uid)
        }
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


class Unreadable(NamedTuple):
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


class Unpublished(NamedTuple):
    """A node's published object was deleted."""

    name: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it."""
        return replace(
            snapshot,
            unreadable=excluding(snapshot.unreadable, self.name),
            publications=excluding(snapshot.publications, self.name),
        )


class PublicationsListed(NamedTuple):
    """Every published object, readable or not. ``known`` are the nodes of which the snapshot has this version.

    ``changed`` are those of which a watch has brought something newer.
    """

    publications: tuple[Published | Unreadable, ...]
    version: str
    known: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Remove publications that are not listed, and update the others."""
        read = {
            change.name if isinstance(change, Unreadable) else change.state.name: change for change in self.publications
        }
        listed = self.known | read.keys() | self.changed
        newer = {name for name, before in snapshot.publications.items() if is_newer(before.version, self.version)}
        for name in (snapshot.publications.keys() | snapshot.unreadable.keys()) - listed - newer:
            snapshot = Unpublished(name).apply_to(snapshot)
        for name, publication in read.items():
            if name not in self.changed:
                snapshot = publication.apply_to(snapshot)
        return snapshot
