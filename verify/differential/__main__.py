"""``python -m verify.differential``: random workloads on a real cluster, plain and steered.

Prints the seed, progress, and each workload that fares worse when steered. Exits with 1 if there is one.
"""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from verify.differential.run import BATCH, arena, compare


def main() -> int:
    """Run as many workloads as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m verify.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=5_000, help="how many workloads (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="repeats a run (default: random)")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}: repeat with --seed {options.seed} --cases {options.cases}\n")
    wanted = plain = steered = worse = 0
    with tempfile.TemporaryDirectory(prefix="topomend-differential-") as folder, arena(Path(folder)) as cluster:
        for first in range(0, options.cases, BATCH):
            numbers = range(first, min(first + BATCH, options.cases))
            compared = compare(cluster, options.seed, numbers)
            for difference in compared.worse:
                worse += 1
                sys.stdout.write(f"WORSE {difference.workload}: {difference.problem}\n")
            wanted, plain, steered = wanted + compared.wanted, plain + compared.plain, steered + compared.steered
            counts = f"{wanted} pods, of which {plain} ran plain and {steered} steered"
            sys.stdout.write(f"{numbers.stop} workloads with {counts}; {worse} fare worse\n")
            sys.stdout.flush()
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
