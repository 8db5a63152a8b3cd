"""``python -m verify.room``: the advice of ``make-room`` beside every set of pods, and carried out on real kubelets.

Prints the seed, the counts, and every fault. Exits with 1 if there is one.
"""

import argparse
import secrets
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random

from tests.clusters import agents_on, cluster_of
from verify.room.compare import compare
from verify.room.real import Lane, Tried, specs, wait_for_agents

MOST_NODES = 6


def main() -> int:
    """Compare as many clusters and carry out as much advice as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m verify.room", description=__doc__)
    parser.add_argument("--clusters", type=int, default=1_000, help="random clusters (default: %(default)s)")
    parser.add_argument("--advice", type=int, default=200, help="pieces to carry out (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="repeats a run (default: random)")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    faults = compared(options.seed, options.clusters)
    if options.advice:
        faults += carried_out(options.seed, options.advice)
    return 1 if faults else 0


def compared(seed: int, clusters: int) -> int:
    """How many random clusters have another answer than trying every set finds."""
    kinds: Counter[str] = Counter()
    faults = 0
    for number in range(clusters):
        one = compare(Random(f"{seed} {number}"), MOST_NODES)
        kinds[one.kind] += 1
        faults += bool(one.fault)
        if one.fault:
            sys.stdout.write(f"FAULT {number}: {one.fault}\n")
    sys.stdout.write(f"{clusters} clusters: {dict(kinds)}, {faults} other than every set of pods says\n")
    return faults


def carried_out(seed: int, pieces: int) -> int:
    """How many pieces of advice did not help on real kubelets."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topomend-room-")))
        cluster = stack.enter_context(cluster_of(specs()))
        stack.enter_context(agents_on(cluster, folder / "agents.log"))
        wait_for_agents(cluster)
        lanes = [Lane(cluster, name, seed, folder) for name in cluster.states]
        shares = [pieces // len(lanes) + (number < pieces % len(lanes)) for number in range(len(lanes))]
        with ThreadPoolExecutor(len(lanes)) as pool:
            tried = [each for found in pool.map(_of_lane, lanes, shares) for each in found]
    for each in tried:
        if each.fault:
            sys.stdout.write(f"FAULT {each.fault}\n")
    helped = sum(not each.fault for each in tried)
    sizes = dict(sorted(Counter(each.gone for each in tried).items()))
    sys.stdout.write(f"{helped} of {len(tried)} pieces of advice helped; pods that had to go: {sizes}\n")
    return len(tried) - helped


def _of_lane(lane: Lane, pieces: int) -> list[Tried]:
    return list(islice((tried for tried in lane.tries() if tried is not None), pieces))


if __name__ == "__main__":
    sys.exit(main())
