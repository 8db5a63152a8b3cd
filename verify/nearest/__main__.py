"""``python -m verify.nearest``: check the explanations of many random refused pods, on all cores by default.

Checks the nearest amounts, the sentences of the causes and the remedies. Every fourth case is on 9 to 16 NUMA nodes,
sometimes on 34. Prints the seed, the number of refused pods, the number of named amounts, how many pods each kind of
cause had, and every error. Exits with 1 if there is one.
"""

import argparse
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from random import Random

from verify.nearest.causes import wrong_causes
from verify.nearest.counterfactual import RefusedPod, faults, refused_on_many, refused_pods
from verify.nearest.remedies import wrong_remedies

from topomend.explain.nearest.nearest_amounts import nearest_amounts
from topomend.explain.remedy import remedy_of
from topomend.replay.admission import admit
from topomend.replay.topology.merge import LISTED_NODES

BATCH = 20
"""How many random cases a process takes at a time; a case has about two refused pods."""

MANY = 4
"""Of so many cases one is on more than eight NUMA nodes, where a fourth of the amounts is asked about."""


@dataclass(frozen=True)
class Checked:
    """What came of a batch. ``slowest`` is the longest search, in seconds of processor time."""

    refused: int
    named: int
    wrong: tuple[str, ...]
    slowest: float
    kinds: Counter[str]


def refused_by(number: int) -> Generator[RefusedPod, None, None]:
    """The refused pods of the random case ``number``."""
    yield from (refused_on_many if number % MANY == MANY - 1 else refused_pods)(number)


def check(seed: int, samples: int) -> Checked:
    """Check the refused pods of ``BATCH`` random cases from ``seed`` on."""
    refused = named = 0
    slowest = 0.0
    wrong: list[str] = []
    kinds: Counter[str] = Counter()
    for number in range(seed, seed + BATCH):
        for pod in refused_by(number):
            begin = time.process_time()
            amounts = nearest_amounts(pod.state, pod.pod)
            slowest = max(slowest, time.process_time() - begin)
            refused, named = refused + 1, named + len(amounts)
            asked = samples if len(pod.state.machine.numa_nodes) <= LISTED_NODES else max(2, samples // MANY)
            problems = faults(pod, amounts, Random(number), asked)
            kind, false = wrong_causes(pod)
            kinds[kind.value] += 1
            problems += false + wrong_remedies(pod, remedy_of(pod.state, pod.pod, admit(pod.state, pod.pod)[0]))
            wrong += [f"seed {number}, pod {pod.pod.name}: {fault}" for fault in problems]
    return Checked(refused, named, tuple(wrong), slowest, kinds)


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
    kinds: Counter[str] = Counter()
    batches = _batches(options.seed, options.samples, options.processes)
    for checked in batches:
        refused, named = refused + checked.refused, named + checked.named
        slowest = max(slowest, checked.slowest)
        wrong += checked.wrong
        kinds += checked.kinds
        sys.stdout.writelines(f"WRONG {fault}\n" for fault in checked.wrong)
        sys.stdout.write(f"\r{refused} refused pods, {named} amounts named, {len(wrong)} wrong")
        sys.stdout.flush()
        if refused >= options.cases:
            break
    batches.close()
    sys.stdout.write("".join(f"\n{count} {kind}" for kind, count in kinds.most_common()))
    sys.stdout.write(f"\nthe slowest search took {slowest * 1000:.0f} ms\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
