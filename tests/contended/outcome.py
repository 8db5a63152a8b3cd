"""What became of the arrivals under one way of placing them, and what that comes to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import quantiles

from tests.contended.arrivals import Arrival


@dataclass
class Stay:
    """One arrival's fate; times in seconds from the start. ``ran`` is None where it never ran."""

    arrival: Arrival
    came: float
    ran: float | None = None
    ended: float | None = None
    refused: int = 0


@dataclass
class Outcome:
    """One run. ``cost`` is what else was measured of it."""

    way: str
    stays: list[Stay] = field(default_factory=list)
    cost: str = ""

    @property
    def refused(self) -> int:
        """Pods that a kubelet refused, each as often as it was."""
        return sum(stay.refused for stay in self.stays)

    @property
    def never_ran(self) -> int:
        """Arrivals that never ran."""
        return sum(stay.ran is None for stay in self.stays)

    def waits(self) -> list[float]:
        """Seconds from arrival to running, of those that ran."""
        return sorted(stay.ran - stay.came for stay in self.stays if stay.ran is not None)

    def wait(self, percent: int) -> float:
        """A percentile of the waits."""
        return percentile(self.waits(), percent)

    def lag(self) -> float:
        """Seconds by which a pod was longer seen to run than it ran, on average."""
        ended = [(stay.ended - stay.ran) - stay.arrival.seconds for stay in self.stays if stay.ran and stay.ended]
        return max(0.0, sum(ended) / len(ended)) if ended else 0.0

    def stranded(self, cpus: int) -> float:
        """CPUs free while somebody waited or had been refused for good: the mean over that time."""
        last = max(stay.ended or stay.ran or stay.came for stay in self.stays)
        moments = sorted({time for stay in self.stays for time in (stay.came, stay.ran or last, stay.ended or last)})
        waited = free = 0.0
        for begin, end in pairwise(moments):
            if any(stay.came <= begin < (last if stay.ran is None else stay.ran) for stay in self.stays):
                used = sum(stay.arrival.cpus for stay in self.stays if _runs(stay, begin, last))
                waited += end - begin
                free += (end - begin) * (cpus - used)
        return free / waited if waited else 0.0


def _runs(stay: Stay, moment: float, last: float) -> bool:
    return stay.ran is not None and stay.ran <= moment < (last if stay.ended is None else stay.ended)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that ``percent`` of the values do not exceed, interpolated; 0 of no values."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]
