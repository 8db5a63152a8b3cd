"""``python -m verify.soak``: kill the operator KILLS times, and report. Exits with 1 if a pod was lost or doubled."""

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

from verify.soak.soak import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.soak")
    parser.add_argument("--kills", type=int, default=200, help="how often to kill an operator (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument(
        "--operators", type=int, default=2, help="operators that run side by side (default: %(default)s)"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop killing after so long")
    parser.add_argument("--logs", type=Path, help="keep the operators' logs in this folder")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.logs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        report = soak(
            arguments.kills, arguments.seed, folder, operators=arguments.operators, seconds=arguments.minutes * 60
        )
    print("\n".join(report.lines()))
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
