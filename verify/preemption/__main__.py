"""``python -m verify.preemption``: random clusters on a real control plane, plain and steered.

Prints the seed, progress, and each cluster that fares worse when steered. Exits with 1 if there is one.
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
        self.worse = self.worse_than_plain = self.worse_by_itself = self.unknown = 0
        self._lock = threading.Lock()

    def add(self, one: Compared) -> None:
        """Count a cluster, and print it where it fares worse."""
        with self._lock:
            self.compared.append(one)
            number = one.cluster.number
            if one.worse:
                self._say("\n    ".join([f"WORSE {number}: {', '.join(one.worse)}\n  {one}", *one.steered.told]))
            if one.worse_by_itself and one.again:
                self._say("\n    ".join([f"PLAIN AGAIN {number}: {', '.join(one.worse_by_itself)}", *one.again.told]))
            self.worse += bool(one.worse)
            self.worse_than_plain += bool(one.worse_than_plain)
            self.worse_by_itself += bool(one.worse_by_itself)
            if len(self.compared) % SHOWN == 0:
                self._say(self.text())

    def unable(self, number: int, why: TimedOut) -> None:
        """Count a cluster that did not come up or go."""
        with self._lock:
            self.unknown += 1
            self._say(f"UNKNOWN {number}: {why}")

    def text(self) -> str:
        """All sums in one line."""
        ways = {"plain": [one.plain for one in self.compared], "steered": [one.steered for one in self.compared]}
        again = [one.again for one in self.compared if one.again]
        figures = [
            f"{name}: {sum(len(outcome.ran) for outcome in outcomes)} ran, "
            f"{sum(outcome.refused for outcome in outcomes)} refused, "
            f"{sum(len(outcome.victims) for outcome in outcomes)} victims, "
            f"{sum(outcome.in_vain for outcome in outcomes)} in vain"
            for name, outcomes in (ways | ({"plain again": again} if again else {})).items()
        ]
        pods = sum(len(one.cluster.urgent) for one in self.compared)
        counts = f"{len(self.compared)} clusters with {pods} urgent pods, {self.unknown} unknown"
        worse = f"{self.worse} fare worse steered, {self.worse_than_plain} of them than plain"
        if again:
            worse += f"; {self.worse_by_itself} fare worse than plain when plain again"
        return "; ".join([counts, *figures, worse])

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
    parser.add_argument("--baseline", action="store_true", help="run each plain once more, and compare that as well")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}: repeat with --seed {options.seed} --clusters {options.clusters}\n")
    numbers = options.only or range(options.first, options.first + options.clusters)
    figures, lanes = Figures(), min(options.lanes, len(numbers))
    with tempfile.TemporaryDirectory(prefix="topomend-preemption-") as folder, arena(Path(folder), lanes) as place:
        with ThreadPoolExecutor(lanes) as pool:
            tasks = [
                pool.submit(run, place, lane, options.seed, numbers[lane::lanes], figures, baseline=options.baseline)
                for lane in range(lanes)
            ]
        for task in tasks:
            task.result()
        sys.stdout.write(f"{figures.text()}; the operator itself evicted {place.evictions}\n")
    return 1 if figures.worse or figures.unknown else 0


def run(
    place: Arena, lane: int, seed: int, numbers: Sequence[int], figures: Figures, *, baseline: bool = False
) -> None:
    """Run clusters one after the other on the nodes of one lane."""
    for number in numbers:
        try:
            figures.add(compare(place, lane, seed, number, baseline=baseline))
        except TimedOut as late:
            figures.unable(number, late)


if __name__ == "__main__":
    sys.exit(main())
