"""What a way of placing pods comes to: refusals, room for a pod of 4 GPUs, waits, nodes that stood empty."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from verify.contended.arrivals import Arrival
from verify.contended.outcome import Outcome, Stay, percentile
from verify.pool.scenario import GPU, GPUS_A_MACHINE, RUNNERS, gpus_of, runner

from topomend.alignment.requested import admission_of
from topomend.model.nodes.node_state import NodeState, allocations
from topomend.wire.pods.pod import read_pod

WARM_UP = 0.2
"""The part of the arrivals whose time does not count: the cluster begins empty."""

PROBE, WIDE = 4, (4, 8)
"""The pod for which there ought to be room, and those whose waits have a target, in GPUs."""

Span = tuple[float, float]


Changes = list[tuple[float, int]]
"""What a figure is from each moment on, in their order."""


class Watched:
    """The room of each node as it is shown its states: the free GPUs, and whether its kubelet admits a pod of 4.

    No pod of 4 GPUs may go to a node ``apart``.
    """

    def __init__(self, apart: Collection[str] = ()) -> None:
        self._probe, self._apart = admission_of(read_pod(runner("probe", PROBE))), apart
        self._admits: dict[str, Changes] = {}
        self._free: dict[str, Changes] = {}

    def __call__(self, now: float, state: NodeState) -> None:
        """The kubelet is in this state from now on."""
        self.show(now, state.name, GPUS_A_MACHINE - _gpus_held(state), admits=self._probe.admits(state))

    def show(self, now: float, node: str, free: int, *, admits: bool) -> None:
        """The node has so many GPUs free from now on."""
        self._admits.setdefault(node, []).append((now, admits and node not in self._apart))
        self._free.setdefault(node, []).append((now, free))

    def admitting(self) -> list[Span]:
        """When some kubelet would have admitted a pod of 4 GPUs."""
        return union(span for changes in self._admits.values() for span in _spans(changes, 1))

    def in_total(self) -> list[Span]:
        """When so many GPUs were free in total."""
        by_time = sorted(
            (now, after - before)
            for changes in self._free.values()
            for (_, before), (now, after) in pairwise([(0.0, 0), *changes])
        )
        totals, total = [], 0
        for now, change in by_time:
            total += change
            totals.append((now, total))
        return union(_spans(totals, PROBE))

    def most_in_use(self) -> int:
        """How many GPUs of a node were in use at a time, at most."""
        return GPUS_A_MACHINE - min(free for changes in self._free.values() for _, free in changes)

    def longest_empty(self, waiting: Sequence[Span]) -> float:
        """For how long at most a node was empty while a pod waited."""
        empty = (union(_spans(changes, GPUS_A_MACHINE)) for changes in self._free.values())
        return max((end - begin for spans in empty for begin, end in common(spans, waiting)), default=0.0)


@dataclass
class Figures:
    """Of one way, all seeds together.

    ``waits`` are by GPUs. ``admissible`` is the time in which a kubelet would have admitted a pod of 4 GPUs and
    ``in_total`` that in which so many were free, of ``counted`` in all. Times are in seconds.
    """

    refused: int = 0
    never_ran: int = 0
    counted: float = 0.0
    admissible: float = 0.0
    in_total: float = 0.0
    longest_empty: float = 0.0
    waits: dict[int, list[float]] = field(default_factory=lambda: {gpus: [] for gpus in RUNNERS})

    def add(self, arrivals: Sequence[Arrival], outcome: Outcome, watched: Watched) -> None:
        """Count one run, from the end of the warm-up to the last arrival."""
        begin, end = counted = arrivals[int(WARM_UP * len(arrivals))].at, arrivals[-1].at
        self.refused += outcome.refused
        self.never_ran += outcome.never_ran
        for stay in outcome.stays:
            if stay.ran is not None and stay.came >= begin:
                self.waits[gpus_of(stay.arrival)].append(stay.ran - stay.came)
        self.counted += end - begin
        self.admissible += _seconds(common(watched.admitting(), [counted]))
        self.in_total += _seconds(common(watched.in_total(), [counted]))
        waiting = common(union(waits(outcome.stays)), [counted])
        self.longest_empty = max(self.longest_empty, watched.longest_empty(waiting))

    def wait(self, gpus: int) -> float:
        """The p95 of the waits of pods of so many GPUs."""
        return percentile(sorted(self.waits[gpus]), 95)


def waits(stays: Iterable[Stay]) -> Iterator[Span]:
    """When each pod waited."""
    return ((stay.came, stay.ran) for stay in stays if stay.ran is not None)


def union(spans: Iterable[Span]) -> list[Span]:
    """The times that are in one of the spans, in order, those that touch each other as one."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif begin < end:
            joined.append((begin, end))
    return joined


def common(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    """The times that are in both, each of which is in order and without overlaps."""
    shared, one, other = [], 0, 0
    while one < len(left) and other < len(right):
        begin, end = max(left[one][0], right[other][0]), min(left[one][1], right[other][1])
        if begin < end:
            shared.append((begin, end))
        if left[one][1] < right[other][1]:
            one += 1
        else:
            other += 1
    return shared


def _seconds(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def _spans(changes: Sequence[tuple[float, int]], least: int) -> Iterator[Span]:
    """When the figure was ``least`` or more; the last change lasts."""
    for (begin, figure), (end, _) in pairwise([*changes, (inf, 0)]):
        if figure >= least:
            yield begin, end


def _gpus_held(state: NodeState) -> int:
    held = (devices for container in allocations(state.pods) for devices in container.devices)
    return sum(len(devices.ids) for devices in held if devices.resource == GPU)
