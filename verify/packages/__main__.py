"""``python -m verify.packages [--all]``: the wheel with the lowest and the newest packages that pyproject.toml allows.

Builds the wheel and installs it into environments of its own: with the lowest packages on the oldest Python that
topomend supports, with the newest ones on the newest Python of this machine. There it asks every command for its help,
simulates a pod, discovers this machine, checks the types of a program that uses the library, and runs the unit tests of
the rooms that use other packages. Beside each is an environment without extras, which has the library and the commands
that need no cluster, and in which other commands name their extra. With ``--all`` it tries each set of packages on both
Pythons, with all unit tests. As many environments are tried at a time as there are processors. Prints a row for each.

At last somebody else's project, ``examples/is-my-pod-aligned``, is tested as its CI would with the wheel of
``topomend-sandbox`` and the newest packages; how long that takes once Kubernetes is built has a target. Exits with 1 if
something fails or takes too long.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from tools.commands import Unavailable
from verify.packages.environment import LOWEST, NEWEST, Environment, Wheels, build_wheels
from verify.packages.pythons import newest, oldest
from verify.packages.stranger import WARM_SECONDS, try_as_stranger
from verify.packages.trial import COLUMNS, try_core, try_out
from verify.targets import Target, judge

from topomend.cli.output.table import echo_table
from topomend.sandbox import SandboxError

FAILED = "FAILED"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.packages")
    parser.add_argument("--all", action="store_true", help="try all combinations, with all unit tests")
    arguments = parser.parse_args()
    tried = [(oldest(), LOWEST), (newest(), NEWEST)]
    if arguments.all:
        tried = [(python, packages) for python in dict.fromkeys((oldest(), newest())) for packages in (LOWEST, NEWEST)]
    with tempfile.TemporaryDirectory(prefix="topomend-packages-") as place:
        wheels = build_wheels(Path(place))
        environments = [
            Environment(Path(place, f"environment-{number}"), python, packages, core=core)
            for number, ((python, packages), core) in enumerate(product(tried, (False, True)))
        ]
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as lanes:
            rows = list(lanes.map(partial(row, wheels=wheels, every_test=arguments.all), environments))
        seconds = _stranger(Path(place), wheels)
    echo_table([COLUMNS, *rows])
    has_failed = any(FAILED in cells for cells in rows)
    return max(judge([Target("a stranger's tests, warm", seconds, WARM_SECONDS, "s")]), int(has_failed))


def row(environment: Environment, wheels: Wheels, *, every_test: bool) -> tuple[str, ...]:
    """The row of an environment, which is made and tried. A trial that fails is told on stderr."""
    begun = time.monotonic()
    try:
        environment.install(wheels)
        cells = try_core(environment) if environment.core else try_out(environment, every_test=every_test)
    except Unavailable as error:
        cells = (FAILED,) + ("-",) * (len(COLUMNS) - 4)
        sys.stderr.write(f"{environment.name}: {error}\n")
    return (*environment.name.split(maxsplit=1), *cells, f"{time.monotonic() - begun:.0f}")


def _stranger(place: Path, wheels: Wheels) -> float:
    """How many seconds a stranger waits; without end if his tests fail."""
    try:
        return try_as_stranger(place, wheels, newest())
    except (Unavailable, SandboxError) as error:
        sys.stderr.write(f"a stranger: {error}\n")
        return math.inf


if __name__ == "__main__":
    sys.exit(main())
