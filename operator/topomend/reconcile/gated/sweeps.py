"""On which nodes victims are looked for, for pods that wait: on each node once, then on those that have changed.

To look at a node costs a LIST of its pods. Owns which nodes are next, and when all are looked at once more, because not
every change is seen: budgets and ends of shared pods are not in the snapshot. Leaves what is seen there to
``preemption``.
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import Snapshot
from topomend.decide.queue.order import by_most_free_cpus
from topomend.decide.queue.victims import would_admit_empty
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.unschedulable_pods import changed_nodes
from topomend.replay.effort import UNLIMITED, Effort
from topomend.runtime.backoff import Exponential

MAX_NODES = 10
"""How many nodes are looked at at a time, those with the most CPUs free first."""

REPEATS = Exponential(30.0, 120.0)
"""After how long all nodes are looked at once more."""

MAX_SWEEPS = 200
"""For how many pods it is known where has been looked: each may be a name for each node."""

MAX_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class Look:
    """The ``nodes`` to look at now, whether for the first time; those ``barred`` so far; and whether ``more`` come."""

    nodes: Collection[str]
    is_first: bool
    barred: Collection[str]
    more: bool


@dataclass(slots=True)
class _Sweep:
    """The nodes that are new to a pod, and those to be looked at once more. Times are in seconds."""

    new: deque[str]
    again: deque[str]
    number: int
    due: float
    asked: float


class Sweeps:
    """Which nodes are next for each pod. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted = Snapshot()
        self._changed: dict[str, float] = {}
        self._sweeps: BoundedDict[str, _Sweep] = BoundedDict(MAX_SWEEPS)
        self._begun: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)

    def note(self, snapshot: Snapshot) -> None:
        """Note which nodes have changed since the last call."""
        now = self._clock()
        self._changed.update(dict.fromkeys(changed_nodes(self._noted, snapshot), now))
        for name in self._changed.keys() - snapshot.nodes.keys():
            del self._changed[name]
        self._noted = snapshot

    def next(self, snapshot: Snapshot, pod: WatchedPod, barred: Collection[str], effort: Effort = UNLIMITED) -> Look:
        """The next nodes for ``pod`` that would admit it if they were empty; those that are ``barred`` are left.

        Raises Overspent.
        """
        sweep = self._sweep(snapshot, pod, effort)
        new, barred_new = _first(snapshot, pod, sweep.new, barred, effort)
        again, barred_again = ([], []) if new else _first(snapshot, pod, sweep.again, barred, effort)
        nodes = new or again
        return Look(nodes, bool(new), barred_new + barred_again, len(sweep.new) + len(sweep.again) > len(nodes))

    def looked(self, pod: WatchedPod, look: Look, again: Collection[str] = ()) -> None:
        """The nodes were looked at; at those in ``again`` once more, for what comes or goes there is soon known."""
        if sweep := self._sweeps.get(pod.uid):
            for queue in (sweep.new, sweep.again):
                kept = [name for name in queue if name not in look.nodes]
                queue.clear()
                queue.extend(kept)
            sweep.again.extend(again)

    def forget(self, pod: WatchedPod) -> None:
        """Begin with all nodes the next time."""
        self._sweeps.pop(pod.uid, None)

    def _sweep(self, snapshot: Snapshot, pod: WatchedPod, effort: Effort) -> _Sweep:
        """Where to look for ``pod`` from now on."""
        now, sweep = self._clock(), self._sweeps.get(pod.uid)
        if sweep is None:
            names, none = deque(by_most_free_cpus(snapshot, effort)), deque[str]()
            new, again = (none, names) if pod.uid in self._begun else (names, none)
            self._begun[pod.uid] = None
            sweep = self._sweeps[pod.uid] = _Sweep(new, again, 1, now + REPEATS.first, now)
            return sweep
        known = {*sweep.new, *sweep.again}
        changed = [name for name, moment in self._changed.items() if moment > sweep.asked and name not in known]
        sweep.again.extendleft(changed)
        if sweep.due <= now:
            known.update(changed)
            sweep.again.extend(name for name in by_most_free_cpus(snapshot, effort) if name not in known)
            sweep.number += 1
            sweep.due = now + REPEATS.seconds(sweep.number)
        sweep.asked = now
        return sweep


def _first(
    snapshot: Snapshot, pod: WatchedPod, queue: deque[str], barred: Collection[str], effort: Effort
) -> tuple[list[str], list[str]]:
    """The first of ``queue`` to look at, and the barred ones before them. Those before them of no use are taken out."""
    nodes, left, asked = list[str](), list[str](), 0
    for name in queue:
        if len(nodes) == MAX_NODES:
            break
        asked += 1
        if would_admit_empty(snapshot, pod, name, effort):
            (left if name in barred else nodes).append(name)
    rest = list(queue)[asked:]
    queue.clear()
    queue.extend([*nodes, *left, *rest])
    return nodes, left
