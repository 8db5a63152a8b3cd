"""What ends by itself as time passes: assumptions, mismatches, ends of pods, nodes set aside, and trust in an agent.

Owns when a thing ends that carries no end of its own. Leaves how long it lasts to the changes that begin it.
"""

from dataclasses import replace
from typing import NamedTuple

from topomend.cache.assumed import forget, with_ended
from topomend.cache.changes.pods import UNPUBLISHED_SECONDS
from topomend.cache.changes.promises import without_ended
from topomend.cache.changes.publications import SILENT, SILENT_SECONDS
from topomend.cache.changes.replays import LONGEST_ASIDE_SECONDS, MISMATCH_SECONDS
from topomend.cache.changes.trust import with_distrust
from topomend.cache.snapshot import Snapshot, excluding


class TimePassed(NamedTuple):
    """Time has passed."""

    now: float

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Expire assumptions, mismatches and nodes set aside; mark the publications of silent agents as unreliable."""
        snapshot = without_ended(self._asked_again(snapshot), self.now)
        assumed = snapshot.assumed.items()
        snapshot = forget(
            snapshot, *(key for key, pod in assumed if pod.expires is not None and pod.expires <= self.now)
        )
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
        return with_distrust(replace(snapshot, set_aside=others | recent), due)
