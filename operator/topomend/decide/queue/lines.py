"""The gated pods that wait alone for a node, those of each namespace in their order, from one snapshot to the next.

Of thousands that wait few come or go at a time, and only these are sorted in. Nobody is first in line the moment he
comes, so it is looked once a second who has. Owns who is in line. Leaves who may be first in it to its users.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import inf

from topomend.cache.snapshot import PodKey, Snapshot, replaced
from topomend.model.pods.scheduling import WatchedPod
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE


def is_held_by_us(pod: WatchedPod) -> bool:
    """Whether a gate of the operator is all that keeps the pod, a new one or a replacement, from its scheduler."""
    return pod.gates in ((FIT_GATE,), (RELAUNCH_GATE,)) and not pod.deleting


UPDATE_SECONDS = 1.0
"""How old the lines may be: less than any pod waits before it matters who is first."""

_Order = tuple[int, str, str, str]
"""As ``WatchedPod.order``: it ends in the pod's namespace and name."""


class QueueLines:
    """The lines of the snapshot that was shown last, or of one a second before it. For one thread."""

    def __init__(self) -> None:
        self._gated: Mapping[PodKey, WatchedPod] = {}
        self._lines: dict[str, list[_Order]] = {}
        self._due = -inf

    def of(self, snapshot: Snapshot, now: float) -> list[Iterator[WatchedPod]]:
        """The line of each namespace, the first pod first. ``now`` is in seconds."""
        if self._due <= now:
            self._due = now + UPDATE_SECONDS
            self._update(snapshot)
        return [self._line(snapshot, line) for line in self._lines.values()]

    @staticmethod
    def _line(snapshot: Snapshot, line: Iterable[_Order]) -> Iterator[WatchedPod]:
        """The pods that are still there."""
        for order in line:
            pod = snapshot.gated.get((order[2], order[3]))
            if pod is not None and pod.order == order and _is_in_line(pod):
                yield pod

    def _update(self, snapshot: Snapshot) -> None:
        before, self._gated = self._gated, snapshot.gated
        for key in replaced(before, snapshot.gated):
            self._remove(before.get(key))
            self._add(snapshot.gated.get(key))

    def _add(self, pod: WatchedPod | None) -> None:
        if pod is not None and _is_in_line(pod):
            insort(self._lines.setdefault(pod.namespace, []), pod.order)

    def _remove(self, pod: WatchedPod | None) -> None:
        if pod is None or not _is_in_line(pod):
            return
        line = self._lines[pod.namespace]
        del line[bisect_left(line, pod.order)]
        if not line:
            del self._lines[pod.namespace]


def in_turns(lines: Iterable[Iterable[WatchedPod]], most: int) -> list[WatchedPod]:
    """The first pod of each line, then the second of each, and so on, ``most`` of each; those of one rank by order."""
    ranked = [(rank, pod) for line in lines for rank, pod in enumerate(islice(line, most))]
    return [pod for _, pod in sorted(ranked, key=lambda entry: (entry[0], entry[1].order))]


def _is_in_line(pod: WatchedPod) -> bool:
    return is_held_by_us(pod) and pod.group is None
