"""The changes that lead from one snapshot to the next: ``apply(snapshot, change) -> snapshot``.

A relist (``...Listed``) replaces every object of its kind, which repairs a gap in the watch; only objects written after
``version``, the list's resourceVersion, stay, and those deleted after it stay away. A change without news returns an
equal snapshot. Times are in seconds of a monotonic clock. Each is a tuple: a command waits until its class is made, and
a dataclass takes six times as long.

Owns what a change is; the meaning of each is in the module of its subject: ``pods``, ``promises``, ``nodes``,
``totals``, ``publications``, ``records``, ``replays``, ``volumes`` and ``expiry``. Leaves reading objects to ``wire``.
"""

from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from topomend.cache.snapshot import Snapshot, in_place

if TYPE_CHECKING:
    from topomend.cache.changes.expiry import TimePassed
    from topomend.cache.changes.nodes import DeviceClassesListed, NodeRemoved, NodesListed, NodeUpdated
    from topomend.cache.changes.pods import (
        ENDED,
        NOMINATED_SECONDS,
        UNBOUND_SECONDS,
        PodAssumed,
        PodForgotten,
        PodRemoved,
        PodsListed,
        PodUpdated,
    )
    from topomend.cache.changes.promises import PlacesPromised, PromiseEnded, PromiseProlonged
    from topomend.cache.changes.publications import (
        SILENT,
        SILENT_SECONDS,
        Heartbeat,
        PublicationsListed,
        Published,
        Unpublished,
        Unreadable,
    )
    from topomend.cache.changes.records import RelaunchesListed, RelaunchRemoved, RelaunchUpdated
    from topomend.cache.changes.replays import MISMATCH_SECONDS, MismatchDetected, ReplayOverspent
    from topomend.cache.changes.totals import ListBegun, ListFailed, NodePodsListed, PodOnNode, TotalsUnknown
    from topomend.cache.changes.volumes import PodVolumesRead

__all__ = [
    "ENDED",
    "MISMATCH_SECONDS",
    "NOMINATED_SECONDS",
    "SILENT",
    "SILENT_SECONDS",
    "UNBOUND_SECONDS",
    "Change",
    "DeviceClassesListed",
    "Heartbeat",
    "ListBegun",
    "ListFailed",
    "MismatchDetected",
    "NodePodsListed",
    "NodeRemoved",
    "NodeUpdated",
    "NodesListed",
    "PlacesPromised",
    "PodAssumed",
    "PodForgotten",
    "PodOnNode",
    "PodRemoved",
    "PodUpdated",
    "PodVolumesRead",
    "PodsListed",
    "PromiseEnded",
    "PromiseProlonged",
    "PublicationsListed",
    "Published",
    "RelaunchRemoved",
    "RelaunchUpdated",
    "RelaunchesListed",
    "ReplayOverspent",
    "TimePassed",
    "TotalsUnknown",
    "Unpublished",
    "Unreadable",
    "apply",
    "apply_all",
]

_HOMES = {
    "TimePassed": "expiry",
    "DeviceClassesListed": "nodes",
    "NodeRemoved": "nodes",
    "NodesListed": "nodes",
    "NodeUpdated": "nodes",
    "ENDED": "pods",
    "NOMINATED_SECONDS": "pods",
    "UNBOUND_SECONDS": "pods",
    "PodAssumed": "pods",
    "PodForgotten": "pods",
    "PodRemoved": "pods",
    "PodsListed": "pods",
    "PodUpdated": "pods",
    "PlacesPromised": "promises",
    "PromiseEnded": "promises",
    "PromiseProlonged": "promises",
    "SILENT": "publications",
    "SILENT_SECONDS": "publications",
    "Heartbeat": "publications",
    "PublicationsListed": "publications",
    "Published": "publications",
    "Unpublished": "publications",
    "Unreadable": "publications",
    "RelaunchesListed": "records",
    "RelaunchRemoved": "records",
    "RelaunchUpdated": "records",
    "MISMATCH_SECONDS": "replays",
    "MismatchDetected": "replays",
    "ReplayOverspent": "replays",
    "ListBegun": "totals",
    "ListFailed": "totals",
    "NodePodsListed": "totals",
    "PodOnNode": "totals",
    "TotalsUnknown": "totals",
    "PodVolumesRead": "volumes",
}
"""The module of each change. It is imported when the change is first named: a command needs few of them, and waits for
the import of each."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A change, or a constant of one (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value


class Change(Protocol):
    """Anything that changes the snapshot."""

    def apply_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot after this."""


def apply(snapshot: Snapshot, change: Change) -> Snapshot:
    """The snapshot after ``change``."""
    return change.apply_to(snapshot)


def apply_all(snapshot: Snapshot, changes: Sequence[Change]) -> Snapshot:
    """The snapshot after ``changes``, one after another."""
    if len(changes) == 1:
        return apply(snapshot, changes[0])
    return in_place(snapshot, lambda draft: reduce(apply, changes, draft))
