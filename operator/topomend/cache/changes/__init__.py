"""The changes that lead from one snapshot to the next: ``apply(snapshot, change) -> snapshot``.

A relist (``...Listed``) replaces every object of its kind, which repairs a gap in the watch; only objects written after
``version``, the list's resourceVersion, stay, and those deleted after it stay away. A change without news returns an
equal snapshot. Times are in seconds of a monotonic clock. Owns what a change is; the meaning of each is in the module
of its subject: ``pods``, ``nodes``, ``totals``, ``publications``, ``records``, ``replays``, ``volumes`` and ``expiry``.
Leaves reading objects to ``wire``.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Protocol

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
from topomend.cache.snapshot import Snapshot, in_place

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
    "PodAssumed",
    "PodForgotten",
    "PodOnNode",
    "PodRemoved",
    "PodUpdated",
    "PodVolumesRead",
    "PodsListed",
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
