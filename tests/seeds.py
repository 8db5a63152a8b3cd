"""One random seed for a whole run, printed in its header. ``TOPOMEND_SEED`` repeats a run.

Every process of a run has the same seed: tests are named by it, and pytest-xdist refuses processes that collect other
tests than the rest.
"""

import os
import secrets

SEED = int(os.environ.setdefault("TOPOMEND_SEED", str(secrets.randbelow((1 << 32) - 1) + 1)))
