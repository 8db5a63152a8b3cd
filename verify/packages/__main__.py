"""``python -m verify.packages [--all]``: the wheel with the lowest and the newest packages that pyproject.toml allows.

Builds the wheel and installs it into environments of its own: with the lowest packages on the oldest Python that
topomend supports, with the newest ones on the newest Python of this machine. There it asks every command for its help,
simulates a pod, discovers this machine, checks the types of a program that uses the package, and runs the unit tests of
the rooms that use other packages. With ``--all`` it tries each set of packages on both Pythons, with all unit tests.
Prints a row for each environment; exits with 1 if one fails.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tools.commands import Unavailable
from verify.packages.environment import LOWEST, NEWEST, Environment, build_wheel
from verify.packages.pythons import newest, oldest
from verify.packages.trial import COLUMNS, try_out

from topomend.cli.output.table import echo_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.packages")
    parser.add_argument("--all", action="store_true", help="try all combinations, with all unit tests")
    arguments = parser.parse_args()
    tried = [(oldest(), LOWEST), (newest(), NEWEST)]
    if arguments.all:
        tried = [(python, packages) for python in dict.fromkeys((oldest(), newest())) for packages in (LOWEST, NEWEST)]
    rows: list[tuple[str, ...]] = [COLUMNS]
    failed = False
    with tempfile.TemporaryDirectory(prefix="topomend-packages-") as place:
        wheel = build_wheel(Path(place))
        for number, (python, packages) in enumerate(tried):
            begun = time.monotonic()
            environment = Environment(Path(place, f"environment-{number}"), python, packages)
            try:
                environment.install(wheel)
                cells = try_out(environment, every_test=arguments.all)
            except Unavailable as error:
                failed = True
                cells = ("FAILED",) + ("-",) * (len(COLUMNS) - 4)
                sys.stderr.write(f"{environment.name}: {error}\n")
            rows.append((*environment.name.split(maxsplit=1), *cells, f"{time.monotonic() - begun:.0f}"))
    echo_table(rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
