"""``python -m verify.kubelet_tests``: the kubelet's own unit tests, its decisions answered by replay, in one table.

Fails if a test fails that ``expected`` does not name, if one passes that it names, or if a replaced function was asked
nothing. Tests that ask none of the replaced functions check the kubelet alone; they are counted and must pass too.

Exit codes: 0 all as expected, 1 something else failed, 2 the tests cannot be built.
"""

import argparse
import sys
import time

from verify.kubelet_tests.build import NotBuilt, binaries_of
from verify.kubelet_tests.overlay import NotReplaced
from verify.kubelet_tests.results import Results
from verify.kubelet_tests.run import run

from topomend.cli.output.table import echo_table
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.failures import SandboxUnavailable
from topomend.sandbox.releases.go_modules import NotARelease


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.kubelet_tests", description=__doc__)
    parser.add_argument("--version", default=DEFAULT_VERSION, help="a release of Kubernetes")
    version = parser.parse_args().version
    try:
        binaries = binaries_of(version)
    except (NotBuilt, NotReplaced, NotARelease, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    begin = time.monotonic()
    cases = [case for package in binaries.binaries for case in run(binaries, package)]
    results = Results(version, binaries.functions, cases)
    sys.stdout.writelines(f"{line}\n" for line in results.remarks())
    sys.stdout.flush()
    echo_table(list(results.table()))
    print(f"{results.sum()}, in {time.monotonic() - begin:.0f} s")
    return 0 if results.as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
