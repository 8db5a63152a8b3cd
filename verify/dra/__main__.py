"""``python -m verify.dra``: random pods of CPUs, devices and claims on real kubelets, and what is told of them.

Prints the seed, the counts, and every container whose alignment is told otherwise than its kubelet and its claims say.
Exits with 1 if there is one.
"""

import argparse
import secrets
import sys
from collections import Counter

from verify.dra.mixed import rounds


def main() -> int:
    """Run as many pods as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m verify.dra", description=__doc__)
    parser.add_argument("--pods", type=int, default=1_000, help="how many run at least (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="repeats a run (default: random)")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}: repeat with --seed {options.seed} --pods {options.pods}\n")
    pods, refused, faults, told = 0, 0, 0, Counter[str]()
    for tried in rounds(options.seed, options.pods):
        pods, refused, faults = pods + tried.running, refused + tried.refused, faults + len(tried.faults)
        told.update(tried.told)
        for fault in tried.faults:
            sys.stdout.write(f"FAULT {fault}\n")
        sys.stdout.write(f"{pods} of {options.pods} ran\n")
        sys.stdout.flush()
    counts = ", ".join(f"{alignment} {count}" for alignment, count in told.most_common())
    sys.stdout.write(f"{pods} pods ran ({refused} did not), containers: {counts}; {faults} told otherwise\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
