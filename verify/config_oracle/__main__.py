"""``python -m verify.config_oracle``: compare what topomend reads from random configurations with the kubelet's loader.

Prints how many were read and refused by both, and the smallest case on which the two differ. ``--write`` saves each
difference as a JSON case, ready for ``cases/``. Exits with 1 after a difference, with 3 without an oracle.
"""

import argparse
import json
import secrets
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

from verify.config_oracle.build import config_oracle_binary
from verify.config_oracle.compare import Case, Report, compare_many
from verify.oracle.build import OracleNotBuilt
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.failures import SandboxUnavailable

REPORT = Path("build/config-oracle-report.txt")


def main() -> int:
    """Compare, print the report and write it to a file."""
    parser = argparse.ArgumentParser(prog="python -m verify.config_oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=30_000, help="how many random cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="the first case's number (default: random)")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the kubelet's version (default: %(default)s)")
    parser.add_argument("--write", type=Path, help="write each difference to a file in this folder")
    options = parser.parse_args()
    try:
        binary = config_oracle_binary(options.version)
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    seed = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    with KubeletOracle(binary) as oracle:
        report = compare_many(oracle, seed, options.cases, options.version)
    text = "\n".join(lines(report, options.version, seed, options.cases)) + "\n"
    sys.stdout.write(text)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(text)
    for number, case, _ in report.differences if options.write else ():
        options.write.mkdir(parents=True, exist_ok=True)
        (options.write / f"{number}.json").write_text(json.dumps(case, indent=1) + "\n")
    return 1 if report.differences else 0


def lines(report: Report, version: str, seed: int, count: int) -> Iterator[str]:
    """The report, as text."""
    yield f"kubelet {version}, seed {seed}: repeat with --seed {seed} --cases {count}"
    yield f"read alike: {report.read}; refused by both: {report.refused}; different: {len(report.differences)}"
    yield f"refused, because topomend cannot tell how the kubelet reads them: {report.not_told}"
    yield f"not compared, for the kubelet takes no such feature gates, or has nothing to read: {report.not_compared}"
    for number, case, difference in sorted(report.differences, key=lambda one: len(str(one[1])))[:1]:
        yield f"the smallest difference, case {number}: {difference[:1000]}"
        yield from shown(case)


def shown(case: Case) -> Iterator[str]:
    """The case for people."""
    if "file" in case:
        yield f"--- the file\n{b64decode(case['file']).decode(errors='backslashreplace')}"
    for name, text in case.get("dropIns", {}).items():
        yield f"--- {name}\n{b64decode(text).decode(errors='backslashreplace')}"
    yield f"--- links {case.get('links', {})}, flags {case.get('flags', [])}"


if __name__ == "__main__":
    sys.exit(main())
