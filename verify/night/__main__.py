"""``python -m verify.night [PART ...]``: everything that takes too long for each change, one after another, in a table.

Each part is a command of its own, as the Makefile has it; its output is in ``build/night/PART.log``. CI runs a smaller
sister of most of them in ``make test``. Exits with 1 if a part failed, with 2 for a part that does not exist.
"""

import argparse
import os
import subprocess
import sys
import time
from difflib import get_close_matches
from pathlib import Path

from verify.night.parts import PARTS, Part

from topomend.cli.output.table import echo_table

LOGS = Path("build", "night")

COLUMNS = ("PART", "RESULT", "MINUTES", "LAST LINE")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.night", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all of {', '.join(PARTS)}")
    asked = parser.parse_args().parts or list(PARTS)
    for name in asked:
        if name not in PARTS:
            near = get_close_matches(name, PARTS, n=1)
            parser.error(f"no part {name}" + (f"; did you mean {near[0]}?" if near else ""))
    rows = [run(name, PARTS[name]) for name in asked]
    echo_table([COLUMNS, *rows])
    return 1 if any(result != "passed" for _, result, _, _ in rows) else 0


def run(name: str, part: Part) -> tuple[str, str, str, str]:
    """The row of a part, which is run to its end whatever the others came to."""
    print(f"{name}: {part}", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    log, begun = LOGS / f"{name}.log", time.monotonic()
    with log.open("w") as output:
        done = subprocess.run(part.argv, env=os.environ | part.environment, stdout=output, stderr=output, check=False)
    result = "passed" if done.returncode == 0 else f"FAILED ({done.returncode})"
    return name, result, f"{(time.monotonic() - begun) / 60:.1f}", last_line(log.read_text())


def last_line(text: str) -> str:
    """The last line of an output that says anything."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")


if __name__ == "__main__":
    sys.exit(main())
