"""``python -m verify.pool``: pods of 1 to 8 GPUs in one pool, in virtual time, beside what a site does without it.

One table has, for each load and each way of placing the same pods: refusals; the part of the time in which a kubelet
would have admitted a pod of 4 GPUs, and of that in which 4 were free in total; the p95 of the waits of pods of 4 and of
8 GPUs, and how many times the bound's that is; and how long a node was empty at most while a pod waited. The same seeds
give the same table. Exits with 1 if the steered run misses a target.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from random import Random

from verify.contended.arrivals import Arrival
from verify.pool.figures import WIDE, Figures
from verify.pool.scenario import MACHINES, arrivals
from verify.pool.ways import ALL_KNOWING, STEERED, WAYS
from verify.targets import Target, judge

from topomend.cli.output.table import echo_table

LOADS = (0.75, 0.9)

ADMISSIBLE, AT_LOAD = 0.95, 0.75
"""Which part of the time there is to be room for a pod of 4 GPUs, and at which load."""

WAIT_OF_BOUND = 1.25
EMPTY_SECONDS = 300.0

COLUMNS = (
    "LOAD",
    "",
    "REFUSED",
    "NEVER-RAN",
    "ROOM-FOR-4",
    "OF-4-FREE",
    *(title for gpus in WIDE for title in (f"P95-WAIT-{gpus}", "OF-BOUND")),
    "LONGEST-EMPTY",
)


def main() -> int:
    """Run every way, and report."""
    parser = argparse.ArgumentParser(prog="python -m verify.pool", description=__doc__)
    parser.add_argument("--pods", type=int, default=600, help="how many pods arrive (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs count together (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's (default: %(default)s)")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.seeds)
    found = {load: measured(options.pods, load, seeds) for load in LOADS}
    sys.stdout.write(f"{options.pods} pods on {MACHINES} machines, seeds {seeds[0]} to {seeds[-1]}\n")
    sys.stdout.flush()
    echo_table([COLUMNS, *(row for load, figures in found.items() for row in rows(load, figures))])
    return judge([target for load, figures in found.items() for target in targets(load, figures)])


def measured(pods: int, load: float, seeds: Iterable[int]) -> Mapping[str, Figures]:
    """The figures of each way, with the same arrivals for all."""
    found = {name: Figures() for name in WAYS}
    for seed in seeds:
        coming = coming_pods(pods, load, seed)
        for name, way in WAYS.items():
            found[name].add(coming, *way(coming, Random(seed)))
    return found


def coming_pods(pods: int, load: float, seed: int) -> list[Arrival]:
    """The arrivals of a seed: the same for every way, in virtual time and on real kubelets."""
    return arrivals(Random(f"{seed} {load}"), pods, load)


def bound(found: Mapping[str, Figures], gpus: int) -> float:
    """The p95 of the waits that an all-knowing scheduler reaches."""
    return min(found[name].wait(gpus) for name in ALL_KNOWING)


def rows(load: float, found: Mapping[str, Figures]) -> Iterator[tuple[str, ...]]:
    """A row of the table for each way."""
    for name, figures in found.items():
        yield (
            f"{load:.0%}",
            name,
            str(figures.refused),
            str(figures.never_ran),
            f"{figures.admissible / figures.counted:.1%}",
            f"{figures.admissible / figures.in_total:.1%}" if figures.in_total else "-",
            *(cell for gpus in WIDE for cell in _wait(figures.wait(gpus), bound(found, gpus))),
            f"{figures.longest_empty:.0f} s",
        )


def _wait(seconds: float, bound: float) -> tuple[str, str]:
    return f"{seconds:.0f} s", f"{seconds / bound:.2f}x" if bound else "-"


def targets(load: float, found: Mapping[str, Figures]) -> Iterator[Target]:
    """What the steered run is to reach."""
    figures = found[STEERED]
    yield Target(f"{load:.0%}: pods refused", figures.refused, 0)
    yield Target(f"{load:.0%}: pods that never ran", figures.never_ran, 0)
    if load == AT_LOAD:
        yield Target(
            f"{load:.0%}: time without room for 4 GPUs", 1 - figures.admissible / figures.counted, 1 - ADMISSIBLE
        )
    for gpus in WIDE:
        limit = WAIT_OF_BOUND * bound(found, gpus)
        yield Target(f"{load:.0%}: p95 wait of {gpus} GPUs", figures.wait(gpus), limit, "s")
    yield Target(f"{load:.0%}: a node empty while a pod waits", figures.longest_empty, EMPTY_SECONDS, "s")


if __name__ == "__main__":
    sys.exit(main())
