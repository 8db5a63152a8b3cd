"""``python -m verify.nearest``: check the nearest amounts of many random refused pods, on all cores by default.

Prints the seed, the number of refused pods, the number of named amounts, and every error. Exits with 1 if there is one.
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from random import Random

from verify.nearest.counterfactual import faults, refused_pods

from topomend.decide.nearest.nearest_amounts import nearest_amounts

BATCH = 20
"""How many random cases a process takes at a time; a case has about two refused pods."""


@dataclass(frozen=True)
class Checked:
    """What came of a batch. ``slowest`` is the longest search, in seconds of processor time."""

    refused: int
    named: int
    wrong: tuple[str, ...]
    slowest: float


def check(seed: int, samples: int) -> Checked:
    """Check the refused pods of ``BATCH`` random cases from ``seed`` on."""
    refused = named = 0
    slowest = 0.0
    wrong: list[str] = []
    for number in range(seed, seed + BATCH):
        for pod in refused_pods(number):
            begin = time.process_time()
            amounts = nearest_amounts(pod.state, pod.pod)
            slowest = max(slowest, time.process_time() - begin)
            refused, named = refused + 1, named + len(amounts)
            problems = faults(pod, amounts, Random(number), samples)
            wrong += [f"seed {number}, pod {pod.pod.name}: {fault}" for fault in problems]
    return Checked(refused, named, tuple(wrong), slowest)


def _batches(seed: int, samples: int, processes: int) -> Generator[Checked, None, None]:
    """The batches in order, a few ahead of who reads them."""
    with ProcessPoolExecutor(processes) as executor:
        seeds = count(seed, BATCH)
        running = [executor.submit(check, start, samples) for start in islice(seeds, 2 * processes)]
        try:
            while True:
                yield running.pop(0).result()
                running.append(executor.submit(check, next(seeds), samples))
        finally:
            executor.shutdown(cancel_futures=True)


def main() -> int:
    """Check as many refused pods as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m verify.nearest", description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="how many refused pods")
    parser.add_argument("--samples", type=int, default=12, help="how many amounts to ask about for each resource")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    refused = named = 0
    slowest = 0.0
    wrong: list[str] = []
    batches = _batches(options.seed, options.samples, options.processes)
    for checked in batches:
        refused, named = refused + checked.refused, named + checked.named
        slowest = max(slowest, checked.slowest)
        wrong += checked.wrong
        sys.stdout.writelines(f"WRONG {fault}\n" for fault in checked.wrong)
        sys.stdout.write(f"\r{refused} refused pods, {named} amounts named, {len(wrong)} wrong")
        sys.stdout.flush()
        if refused >= options.cases:
            break
    batches.close()
    sys.stdout.write(f"\nthe slowest search took {slowest * 1000:.0f} ms\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
