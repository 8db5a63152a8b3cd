"""The ways to run the same pods on the same machines: two fleets, or one pool under several schedulers."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from verify.contended.arrivals import Arrival
from verify.contended.bound import best_fit
from verify.contended.outcome import Outcome
from verify.contended.virtual_time import VirtualCluster
from verify.pool.all_knowing import planned
from verify.pool.by_totals import ByTotals, Prefer, least_allocated, most_allocated
from verify.pool.figures import Watched
from verify.pool.scenario import GPUS_A_MACHINE, MACHINES, RUNNERS, gpus_of, machines

from topomend.sandbox import NodeSpec

Way = Callable[[Sequence[Arrival], Random], tuple[Outcome, Watched]]
"""Runs the arrivals. Returns what became of them and of the nodes."""

WIDE_MACHINES = round(MACHINES * RUNNERS[8] * 8 / sum(gpus * number for gpus, number in RUNNERS.items()))
"""How many machines a fleet of their own for pods of 8 GPUs has: the part of all that they ask for."""

ONE_POOL = "restricted"
"""The kubelets' policy where all share the machines: it aligns a pod of 4 GPUs to one NUMA node, of 8 to both."""


def by_totals(prefer: Prefer) -> Way:
    """One pool under a scheduler that sees totals."""

    def way(arrivals: Sequence[Arrival], chance: Random) -> tuple[Outcome, Watched]:
        watched = Watched()
        return ByTotals(arrivals, chance, machines(ONE_POOL), prefer, watched).run(), watched

    return way


def fleets() -> tuple[list[NodeSpec], list[NodeSpec]]:
    """The machines of pods of less than 8 GPUs, and those of pods of 8, under their kubelets' policies."""
    number = MACHINES - WIDE_MACHINES
    narrow = machines("single-numa-node", number=number)
    return narrow, machines("best-effort", "container", first=number, number=WIDE_MACHINES)


def two_fleets(arrivals: Sequence[Arrival], chance: Random) -> tuple[Outcome, Watched]:
    """Pods of 8 GPUs have machines of their own, under best-effort; the others' kubelets are under single-numa-node.

    Both are packed, as the site does. No other pod may use a wide machine, and no pod of 8 GPUs a narrow one.
    """
    narrow_machines, wide_machines = fleets()
    watched = Watched(apart=[spec.name for spec in wide_machines])
    stays = []
    for fleet, is_wide in ((narrow_machines, False), (wide_machines, True)):
        pods = [arrival for arrival in arrivals if (gpus_of(arrival) == GPUS_A_MACHINE) == is_wide]
        stays += ByTotals(pods, chance, fleet, most_allocated, watched).run().stays
    return Outcome("two fleets", stays), watched


def steered(arrivals: Sequence[Arrival], chance: Random) -> tuple[Outcome, Watched]:
    """One pool under topomend's steering."""
    watched = Watched()
    return VirtualCluster(arrivals, chance, machines(ONE_POOL), watched).run(), watched


def fitted(arrivals: Sequence[Arrival], _: Random) -> tuple[Outcome, Watched]:
    """One pool, all-knowing but for ends."""
    watched = Watched()
    return best_fit(arrivals, 0.0, machines(ONE_POOL), watched), watched


def foreseen(arrivals: Sequence[Arrival], _: Random) -> tuple[Outcome, Watched]:
    """One pool, all-knowing."""
    watched = Watched()
    return planned(arrivals, MACHINES, watched), watched


STEERED = "topomend, steering"

ALL_KNOWING: Mapping[str, Way] = {"all-knowing, best fit": fitted, "all-knowing, ends known": foreseen}
"""The bound is the better of these, figure by figure."""

WAYS: Mapping[str, Way] = {
    "plain scheduler": by_totals(least_allocated),
    "MostAllocated": by_totals(most_allocated),
    "two fleets": two_fleets,
    STEERED: steered,
    **ALL_KNOWING,
}
