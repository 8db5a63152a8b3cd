"""Changes of Relaunch records: the snapshot keeps those that are open."""

from dataclasses import replace
from typing import NamedTuple

from topomend.cache.snapshot import PodKey, Snapshot, excluding, including, is_newer
from topomend.model.relaunch_record import Relaunch


class RelaunchUpdated(NamedTuple):
    """A record was created or has changed."""

    relaunch: Relaunch

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Keep it while it is open."""
        key = (self.relaunch.namespace, self.relaunch.name)
        if not self.relaunch.is_open:
            return replace(snapshot, relaunches=excluding(snapshot.relaunches, key))
        return replace(snapshot, relaunches=including(snapshot.relaunches, key, self.relaunch))


class RelaunchRemoved(NamedTuple):
    """A record was deleted."""

    namespace: str
    name: str

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Forget it."""
        return replace(snapshot, relaunches=excluding(snapshot.relaunches, (self.namespace, self.name)))


class RelaunchesListed(NamedTuple):
    """Every record. ``changed`` are those of which a watch has brought something newer."""

    relaunches: tuple[Relaunch, ...]
    version: str
    changed: frozenset[PodKey] = frozenset()

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """Replace all records."""
        newer = {
            key: record
            for key, record in snapshot.relaunches.items()
            if key in self.changed or is_newer(record.version, self.version)
        }
        still_open = {(record.namespace, record.name): record for record in self.relaunches if record.is_open}
        unchanged = {key: record for key, record in still_open.items() if key not in self.changed}
        return replace(snapshot, relaunches=unchanged | newer)
