"""One random seed for a whole run, printed in its header. ``TOPOMEND_SEED`` repeats a run.

How many random cases there are is here too: few for each change, and many in the night.

Every process of a run has the same seed: tests are named by it, and pytest-xdist refuses processes that collect other
tests than the rest.
"""

import os
import secrets

IS_NIGHT = "TOPOMEND_NIGHT" in os.environ
"""Whether ``make verify`` runs the tests, which has more time than a change has."""

SEED = int(os.environ.setdefault("TOPOMEND_SEED", str(secrets.randbelow((1 << 32) - 1) + 1)))


def cases(each_change: int, at_night: int) -> int:
    """How many random cases to try now."""
    return at_night if IS_NIGHT else each_change
