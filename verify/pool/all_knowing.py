"""The bound: schedulers that know every NUMA node, and that do at once what takes a real one its time.

One places by best fit, the oldest pod first, and lets a younger one go ahead wherever an older one does not fit. The
other knows, too, when each pod will end, and promises each a place and a time at its arrival, the earliest that delays
no older pod (conservative backfilling). No schedule is proven to be the best: the bound is the better of the two.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from verify.contended.arrivals import Arrival
from verify.contended.outcome import Outcome, Stay
from verify.pool.figures import PROBE, Watched
from verify.pool.scenario import GPUS_A_MACHINE, gpus_of

NUMA_NODES = 2

GPUS_A_NUMA_NODE = GPUS_A_MACHINE // NUMA_NODES


@dataclass(frozen=True, slots=True)
class Held:
    """So many GPUs of a NUMA node from one moment to another."""

    begin: float
    end: float
    gpus: int


class Plan:
    """What is held of each NUMA node from ``now`` on, ``NUMA_NODES`` in a row being one machine."""

    def __init__(self, machines: int) -> None:
        self.held: list[list[Held]] = [[] for _ in range(machines * NUMA_NODES)]

    def place(self, now: float, seconds: float, gpus: int) -> tuple[float, range]:
        """Hold the GPUs as early as possible, and where the least is left. Returns from when on, and where."""
        for begin in self._moments(now):
            places = [place for place in self._places(gpus) if self._has_room(place, begin, begin + seconds, gpus)]
            if places:
                best = min(places, key=lambda place: self._left(place, begin, begin + seconds))
                for numa_node in best:
                    self.held[numa_node].append(Held(begin, begin + seconds, gpus // len(best)))
                return begin, best
        raise AssertionError("once all has ended, there is room")

    def forget(self, now: float) -> None:
        """Drop what has ended: nobody is placed in the past."""
        self.held = [[held for held in numa_node if held.end > now] for numa_node in self.held]

    def _moments(self, now: float) -> Iterable[float]:
        """When there may be more room than before."""
        return sorted({now, *(held.end for numa_node in self.held for held in numa_node if held.end > now)})

    def _places(self, gpus: int) -> Iterator[range]:
        """The NUMA nodes that the pod would take: one of them, or both of a machine."""
        width = 1 if gpus <= GPUS_A_NUMA_NODE else NUMA_NODES
        return (range(first, first + width) for first in range(0, len(self.held), width))

    def _has_room(self, place: Sequence[int], begin: float, end: float, gpus: int) -> bool:
        return all(
            self._used(numa_node, moment) + gpus // len(place) <= GPUS_A_NUMA_NODE
            for numa_node in place
            for moment in self._steps(numa_node, begin, end)
        )

    def _left(self, place: Sequence[int], begin: float, end: float) -> tuple[float, float, int]:
        """GPU seconds that are left free on the NUMA nodes, then on their machine; the lowest number of equal ones."""
        machine = place[0] // NUMA_NODES * NUMA_NODES
        on_machine = range(machine, machine + NUMA_NODES)
        return -self._taken(place, begin, end), -self._taken(on_machine, begin, end), place[0]

    def _taken(self, place: Iterable[int], begin: float, end: float) -> float:
        return sum(
            held.gpus * max(0.0, min(end, held.end) - max(begin, held.begin))
            for numa_node in place
            for held in self.held[numa_node]
        )

    def _steps(self, numa_node: int, begin: float, end: float) -> Iterator[float]:
        """The moments at which most may be in use: the first one, and when something begins."""
        yield begin
        yield from (held.begin for held in self.held[numa_node] if begin < held.begin < end)

    def _used(self, numa_node: int, moment: float) -> int:
        return sum(held.gpus for held in self.held[numa_node] if held.begin <= moment < held.end)


def planned(arrivals: Sequence[Arrival], machines: int, watched: Watched) -> Outcome:
    """Place each arrival when it comes, knowing when all before it end."""
    plan, stays = Plan(machines), []
    changes: list[tuple[float, int, int]] = [(0.0, numa_node, 0) for numa_node in range(machines * NUMA_NODES)]
    for arrival in arrivals:
        gpus = gpus_of(arrival)
        plan.forget(arrival.at)
        begin, place = plan.place(arrival.at, arrival.seconds, gpus)
        stays.append(Stay(arrival, arrival.at, begin, begin + arrival.seconds))
        for numa_node in place:
            of_it = gpus // len(place)
            changes += [(begin, numa_node, of_it), (begin + arrival.seconds, numa_node, -of_it)]
    _show(changes, machines, watched)
    return Outcome("planned", stays)


def _show(changes: Iterable[tuple[float, int, int]], machines: int, watched: Watched) -> None:
    """Show what becomes free and is taken, in this order where both happen at a time."""
    free = [GPUS_A_NUMA_NODE] * machines * NUMA_NODES
    for now, numa_node, taken in sorted(changes, key=lambda change: (change[0], change[2])):
        free[numa_node] -= taken
        machine = numa_node // NUMA_NODES
        of_it = free[machine * NUMA_NODES : (machine + 1) * NUMA_NODES]
        watched.show(now, f"node-{machine}", sum(of_it), admits=max(of_it) >= PROBE)
