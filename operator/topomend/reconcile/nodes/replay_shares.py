"""Work that replays, kept to each node's share of time: a node that takes longer twice is set aside.

Owns the clock of the shares and the repetition. Leaves the shares to ``replay.effort``, and how long a node is set
aside to ``cache``.
"""

import logging
import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

from topomend.cache.changes import ReplayOverspent
from topomend.reconcile.store import Store
from topomend.replay.effort import Effort, Overspent, Shares

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


def new_shares(turn_seconds: float = inf) -> Shares:
    """The shares of work that this thread begins now."""
    return Shares(time.thread_time, turn_seconds)


def within_shares(store: Store, work: Callable[[Effort], _Result], turn_seconds: float = inf) -> _Result:
    """The result of ``work``, which may be repeated, and reads the store's snapshot anew each time.

    It hands its effort to all that it has replayed.

    Raises Overspent where it asks a node that was set aside, TurnOver where it takes longer than its turn.
    """
    nodes: set[str] = set()
    while True:
        try:
            return work(new_shares(turn_seconds))
        except Overspent as overspent:
            if overspent.node in nodes:
                raise
            if record_overspent(store, overspent):
                nodes.add(overspent.node)


def record_overspent(store: Store, overspent: Overspent) -> bool:
    """Record that a node has overspent. Returns whether it is set aside, so that its state counts as unknown."""
    node = overspent.node
    before, after = store.apply(ReplayOverspent(node, time.monotonic()))
    aside = after.set_aside[node]
    if before.set_aside.get(node) != aside and aside.active:
        _log.warning("%s; the node is set aside", overspent)
    return aside.active
