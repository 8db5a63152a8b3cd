"""``python -m verify.oracle.restoring``: compare what replay and the kubelet's managers say of random state files.

It exits with 1 after a difference, with 3 without an oracle.
"""

import argparse
import os
import secrets
import sys

from verify.oracle.build import OracleNotBuilt, oracle_binary
from verify.oracle.restoring.compare import compare_all

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.failures import SandboxUnavailable


def main() -> int:
    """Compare and print the report."""
    parser = argparse.ArgumentParser(prog="python -m verify.oracle.restoring", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="how many random cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="the first case's number (default: random)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--version", default=DEFAULT_VERSION, help="the kubelet's version (default: %(default)s)")
    options = parser.parse_args()
    try:
        oracle_binary(options.version)
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    seed = secrets.randbelow(1 << 40) if options.seed is None else options.seed
    report = compare_all(seed, options.cases, options.processes, options.version)
    for why, count in report.seen.most_common():
        sys.stdout.write(f"{count:9}  {why}\n")
    for number, given, found in report.differences[:20]:
        sys.stdout.write(f"\nDIFFERENCE, case {number} ({', '.join(given.did)}): {found}\n")
    sys.stdout.write(
        f"\nkubelet {options.version}, seed {seed}: {report.cases} cases, {report.retried} agreed only on a retry "
        f"(order of Go's maps): {len(report.differences)} differences\n"
    )
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
