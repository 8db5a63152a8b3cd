"""``python -m verify.oracle``: compare replay with the kubelet's managers on random cases, on all cores.

Prints which rules the cases reached and where the two disagree. ``--write`` saves each disagreement as a small JSON
case, ready for ``cases/`` once replay is corrected. Exits with 1 after a disagreement, with 3 without an oracle.
"""

import argparse
import json
import os
import secrets
import sys
from pathlib import Path

from verify.oracle.build import OracleNotBuilt, oracle_binary
from verify.oracle.compare import compare_all

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.failures import SandboxUnavailable

REPORT = Path("build/oracle-report.txt")


def main() -> int:
    """Compare, print the report and write it to a file."""
    parser = argparse.ArgumentParser(prog="python -m verify.oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=30_000, help="how many random cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="the first case's number (default: random)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the kubelet's version (default: %(default)s)")
    parser.add_argument(
        "--recorded", type=int, default=100, help="cases on each recorded and known machine (default: %(default)s)"
    )
    parser.add_argument(
        "--fit", action="store_true", help="cases for the kubelet's fit check, which follows its managers"
    )
    parser.add_argument(
        "--report", type=Path, default=REPORT, help="write the report to this file (default: %(default)s)"
    )
    parser.add_argument("--write", type=Path, help="write each disagreement to a file in this folder")
    options = parser.parse_args()
    try:
        oracle_binary(options.version)
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    seed = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    recorded = 0 if options.fit else options.recorded
    repeat = f"--seed {seed} --cases {options.cases}{' --fit' * options.fit}"
    first = f"kubelet {options.version}, seed {seed}: repeat with {repeat}"
    sys.stdout.write(f"{first}\n")
    report = compare_all(
        seed, options.cases, options.processes, version=options.version, recorded=recorded, fit=options.fit
    )
    lines = list(report.lines(options.version))
    sys.stdout.write("\n".join(lines) + "\n")
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text("\n".join([first, *lines]) + "\n")
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for number, case, _ in report.disagreements:
            (options.write / f"{number}.json").write_text(json.dumps(case, indent=1) + "\n")
    return 1 if report.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
