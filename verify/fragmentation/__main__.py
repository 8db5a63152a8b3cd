"""``python -m verify.fragmentation``: the fragmentation beside the share of probe pods that kubelets refuse.

Prints the seed, and for each resource how well the two agree in order, also without clusters in which every probe fits
or none. Exits with 1 if a rank correlation is below its target.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from random import Random

from verify.fragmentation.clusters import RESOURCES, Measured, measured
from verify.fragmentation.ranking import rank_correlation
from verify.targets import Target, judge

LEAST = 0.9
"""The target of the rank correlation in all clusters."""


def main() -> int:
    """Measure as many clusters as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m verify.fragmentation", description=__doc__)
    parser.add_argument("--clusters", type=int, default=200, help="random clusters (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="repeats a run (default: random)")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    found = [one for number in range(options.clusters) for one in measured(Random(f"{options.seed} {number}"))]
    return judge([_target(resource, [one for one in found if one.resource == resource]) for resource in RESOURCES])


def _target(resource: str, found: Sequence[Measured]) -> Target:
    between = [one for one in found if 0 < one.fragmentation < 1]
    sys.stdout.write(
        f"{resource}: {len(found)} clusters with some free, rank correlation {_agreement(found):.3f}; "
        f"{len(between)} of them between 0 and 1, {_agreement(between):.3f}; "
        f"mean difference {sum(abs(one.fragmentation - one.refused) for one in found) / len(found):.3f}\n"
    )
    return Target(f"{resource}: 1 - rank correlation", 1 - _agreement(found), 1 - LEAST)


def _agreement(found: Sequence[Measured]) -> float:
    return rank_correlation([one.fragmentation for one in found], [one.refused for one in found])


if __name__ == "__main__":
    sys.exit(main())
