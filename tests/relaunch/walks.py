"""``python -m tests.relaunch.walks``: the protocol's walks, a line each, as many side by side as there are CPUs.

FURTHER in the environment walks further than a test has time for.
"""

import gc
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.relaunch.walk import Bounds, Machine, Walk
from tests.relaunch.world import Rules

EVERY = [
    Bounds(operators=2, faults=1, deletions=1, squatters=1),
    Bounds(operators=1, faults=2, deletions=1, squatters=1),
    Bounds(operators=2, faults=1, records=1),
    Bounds(operators=1, faults=2, records=1),
    Bounds(operators=1, faults=1, deletions=1, records=1),
    Bounds(operators=1, faults=2, deletions=1, edits=1),
    Bounds(operators=2, faults=1, edits=1),
    Bounds(operators=1, faults=1, drains=1, edits=1),
    Bounds(operators=1, faults=2, records=1, edits=1),
    Bounds(operators=2, drains=1, unbound=1),
    Bounds(operators=1, drains=1, records=1, edits=1),
    Bounds(operators=1, deletions=1, ends=1, drains=1),
    Bounds(operators=1, faults=1, deletions=1, ends=1),
    Bounds(operators=2, faults=1, deletions=1, unbound=1),
    Bounds(operators=1, deletions=1, drains=1, ends=1, unbound=1, fresh=1),
    Bounds(operators=1, faults=2, deletions=1, unbound=1, edits=1),
    Bounds(operators=1, faults=2, deletions=1, squatters=1, unbound=1),
    Bounds(operators=2, deletions=1, ends=1, unbound=1, fresh=1),
    Bounds(operators=1, faults=1, deletions=1, ends=1, unbound=1),
    Bounds(operators=1, faults=2, deletions=1, unbound=1, noted=1, fresh=1),
    Bounds(operators=1, faults=1, deletions=1, records=1, unbound=1),
]
"""The longest first. No drain, somebody who deletes pods and somebody who deletes records meet in one walk: a record
may be written again for the replacement that an operator is about to delete. Nor do two actors, somebody who changes
the pod, and what ``fresh`` demands of an unbound one: one of them may claim the pod that the other has just given
back."""

FURTHER = [
    Bounds(operators=2, faults=2, squatters=1),
    Bounds(operators=1, faults=3, deletions=1, squatters=1),
    Bounds(operators=1, faults=1, deletions=1, drains=1),
    Bounds(operators=2, deletions=1, drains=1, unbound=1, fresh=1),
    Bounds(operators=1, faults=1, deletions=1, ends=1, drains=1),
    Bounds(operators=2, faults=3),
    Bounds(operators=2, faults=2, deletions=1),
    Bounds(operators=2, faults=2, deletions=1, edits=1),
    Bounds(operators=2, faults=1, deletions=1, squatters=1, edits=1),
    Bounds(operators=2, faults=1, records=1, edits=1),
    Bounds(operators=1, faults=3, deletions=1, edits=1),
    Bounds(operators=1, faults=1, drains=1, records=1),
    Bounds(operators=2, faults=3, deletions=1),
    Bounds(operators=2, faults=2, deletions=1, squatters=1),
    Bounds(operators=3, faults=1, deletions=1, squatters=1),
    Bounds(operators=2, faults=2, deletions=1, unbound=1),
    Bounds(operators=2, faults=1, records=1, unbound=1),
    Bounds(operators=2, faults=1, deletions=1, unbound=1, edits=1),
    Bounds(operators=2, faults=1, deletions=1, unbound=1, noted=1, fresh=1),
    Bounds(operators=2, faults=1, deletions=1, ends=1, unbound=1, fresh=1),
    Bounds(operators=2, deletions=1, squatters=1, ends=1, unbound=1, fresh=1),
    Bounds(operators=1, faults=1, deletions=1, records=1, ends=1, unbound=1, fresh=1),
    Bounds(operators=1, faults=2, deletions=1, squatters=1, ends=1, unbound=1, fresh=1),
    Bounds(operators=1, faults=1, deletions=1, drains=1, ends=1, unbound=1, fresh=1),
]


def walked(bounds: Bounds) -> str:
    """How many situations were checked. Raises Broken, with the way to it."""
    return f"{bounds}: {Walk(Rules(), Machine()).walk(bounds)} situations"


def main() -> None:
    """Walk, until one is broken."""
    # Situations are tuples without circles: the collector would look at all of them over and over, and find nothing.
    with ProcessPoolExecutor(mp_context=get_context("forkserver"), initializer=gc.disable) as pool:
        for line in pool.map(walked, [*(FURTHER if "FURTHER" in os.environ else []), *EVERY]):
            sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
