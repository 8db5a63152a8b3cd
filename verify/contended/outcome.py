"""The outcome of one run: what happened to each arrival, and the figures that follow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import quantiles

from verify.contended.arrivals import Arrival


@dataclass
class Stay:
    """What happened to one arrival; times in seconds from the start. ``ran`` is None if it never ran."""

    arrival: Arrival
    came: float
    ran: float | None = None
    ended: float | None = None
    refused: int = 0


@dataclass
class Outcome:
    """One run. ``way`` names how pods were placed; ``cost`` is the operator's, as text."""

    way: str
    stays: list[Stay] = field(default_factory=list)
    cost: str = ""

    @property
    def refused(self) -> int:
        """How often a kubelet refused a pod."""
        return sum(stay.refused for stay in self.stays)

    @property
    def never_ran(self) -> int:
        """Arrivals that never ran."""
        return sum(stay.ran is None for stay in self.stays)

    def waits(self) -> list[float]:
        """Seconds from arrival to running, sorted, of the pods that ran."""
        return sorted(stay.ran - stay.came for stay in self.stays if stay.ran is not None)

    def wait(self, percent: int) -> float:
        """A percentile of the waits."""
        return percentile(self.waits(), percent)

    def lag(self) -> float:
        """Mean seconds from the end of a pod's processes until the API server shows the end."""
        ended = [(stay.ended - stay.ran) - stay.arrival.seconds for stay in self.stays if stay.ran and stay.ended]
        return max(0.0, sum(ended) / len(ended)) if ended else 0.0

    def stranded(self, cpus: int) -> float:
        """The mean number of free CPUs over the time in which a pod waited or had been refused for good."""
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
