"""``python -m verify.preemption``: random clusters on a real control plane, plain and steered.

Prints the seed, progress, and each cluster that fares worse when steered. Such a cluster is run again, in both ways:
exits with 1 if that shows a fault, and not luck.
"""

import argparse
import secrets
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.waiting import TimedOut
from verify.preemption.run import Arena, Compared, arena, compare

SHOWN = 10
"""After how many clusters progress is printed."""


class Figures:
    """Sums of all clusters so far. May be used by several threads."""

    def __init__(self) -> None:
        self.compared: list[Compared] = []
        self.worse = self.faults = self.unknown = 0
        self._lock = threading.Lock()

    def add(self, one: Compared) -> None:
        """Count a cluster, and print it where it fares worse."""
        with self._lock:
            self.compared.append(one)
            if one.worse:
                self._tell(one)
            self.worse += bool(one.worse)
            self.faults += bool(one.faults)
            if len(self.compared) % SHOWN == 0:
                self._say(self.text())

    def _tell(self, one: Compared) -> None:
        """What was worse, whether it was luck, and what the events of the first steered run say."""
        always = f"a fault: {', '.join(one.faults)}" if one.faults else f"luck, by {len(one.plain)} runs in each way"
        runs = [f"{way}: {outcome}" for way in ("plain", "steered") for outcome in getattr(one, way)]
        lines = [f"WORSE {one.cluster.number}: {', '.join(one.worse)}; {always}", str(one.cluster), *runs]
        self._say("\n    ".join([*lines, *one.steered[0].told]))

    def unable(self, number: int, why: TimedOut) -> None:
        """Count a cluster that did not come up or go."""
        with self._lock:
            self.unknown += 1
            self._say(f"UNKNOWN {number}: {why}")

    def text(self) -> str:
        """The sums of each cluster's first run, in one line."""
        ways = {"plain": [one.plain[0] for one in self.compared], "steered": [one.steered[0] for one in self.compared]}
        figures = [
            f"{name}: {sum(len(outcome.ran) for outcome in outcomes)} ran, "
            f"{sum(outcome.refused for outcome in outcomes)} refused, "
            f"{sum(len(outcome.victims) for outcome in outcomes)} victims, "
            f"{sum(outcome.in_vain for outcome in outcomes)} in vain"
            for name, outcomes in ways.items()
        ]
        pods = sum(len(one.cluster.urgent) for one in self.compared)
        counts = f"{len(self.compared)} clusters with {pods} urgent pods, {self.unknown} unknown"
        return "; ".join([counts, *figures, f"{self.worse} fared worse steered, {self.faults} by a fault"])

    @staticmethod
    def _say(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def main() -> int:
    """Run as many clusters as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m verify.preemption", description=__doc__)
    parser.add_argument("--clusters", type=int, default=1_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one (default: %(default)s)")
    parser.add_argument("--only", type=int, nargs="+", help="the numbers of those to run, instead of a range")
    parser.add_argument("--lanes", type=int, default=4, help="how many side by side (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="repeats a run (default: random)")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}: repeat with --seed {options.seed} --clusters {options.clusters}\n")
    numbers = options.only or range(options.first, options.first + options.clusters)
    figures, lanes = Figures(), min(options.lanes, len(numbers))
    with tempfile.TemporaryDirectory(prefix="topomend-preemption-") as folder, arena(Path(folder), lanes) as place:
        with ThreadPoolExecutor(lanes) as pool:
            tasks = [
                pool.submit(run, place, lane, options.seed, numbers[lane::lanes], figures) for lane in range(lanes)
            ]
        for task in tasks:
            task.result()
        sys.stdout.write(f"{figures.text()}; the operator itself evicted {place.evictions}\n")
    return 1 if figures.faults or figures.unknown else 0


def run(place: Arena, lane: int, seed: int, numbers: Sequence[int], figures: Figures) -> None:
    """Run clusters one after the other on the nodes of one lane."""
    for number in numbers:
        try:
            figures.add(compare(place, lane, seed, number))
        except TimedOut as late:
            figures.unable(number, late)


if __name__ == "__main__":
    sys.exit(main())
