"""``python -m verify.versions v1.30.4 v1.32.5 ...``: try topomend's promises on real clusters of other releases.

On each release: a refused pod is explained and runs elsewhere, also after the operator is killed with SIGKILL; the pods
that a ReplicaSet of one replica makes in half a minute in which no node admits any; pods of a steered namespace, of
which no kubelet refuses any; how long requests for such pods take at 50 a second, beside pods that nothing gates, and
how long the API server waits for the webhook; and random pods, of which simulate says what each kubelet answers
(``tests/live/test_agreement.py``). Then its control plane is upgraded to the next one of the releases while pods are
relaunched, gated and braked. Prints a row for each release. Exits with 1 if a promise is broken or a target missed.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields

from tests.waiting import TimedOut
from verify.targets import Target, judge
from verify.versions.cluster import say
from verify.versions.trial import Row, try_release

from topomend.cli.table import echo_table
from topomend.sandbox import SandboxError
from topomend.sandbox.build import ensure_binary
from topomend.sandbox.go_modules import NotARelease, minor_of

MOST_MINORS = 3
"""How many minor versions a kubelet may be older than its API server (Kubernetes' version skew policy)."""


def rows(releases: Sequence[str], pods: int) -> Iterator[tuple[bool, tuple[str, ...], tuple[Target, ...]]]:
    """For each release, whether every promise held, its row and targets. One that cannot be built spoils no other."""
    built = []
    for release in releases:
        try:
            ensure_binary(say, release)
            built.append(release)
        except (NotARelease, SandboxError) as error:
            yield False, _failed(release, error), ()
    for release, following in zip(built, [*built[1:], ""], strict=True):
        try:
            row = try_release(release, pods, _oldest_kubelet(release, built), following)
            yield "DISAGREE" not in row.random_pods, row.cells(), (row.webhook.target(release),)
        except (SandboxError, TimedOut, AssertionError) as error:
            yield False, _failed(release, error), ()


def _failed(release: str, error: Exception) -> tuple[str, ...]:
    """The row of a release on which a trial failed."""
    return release, *["-"] * (len(fields(Row)) - 2), f"{type(error).__name__}: {error}"[:300]


def _oldest_kubelet(release: str, releases: Sequence[str]) -> str:
    """The oldest of ``releases`` whose kubelets an API server of ``release`` supports; empty if it is itself."""
    minor = minor_of(release)
    oldest = min((one for one in releases if minor - MOST_MINORS <= minor_of(one) <= minor), key=minor_of)
    return "" if oldest == release else oldest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verify.versions")
    parser.add_argument("releases", nargs="+", metavar="RELEASE", help="such as v1.32.5; each is built once")
    parser.add_argument("--pods", type=int, default=200, help="random pods on each release (default: %(default)s)")
    arguments = parser.parse_args()
    results = []
    for result in rows(arguments.releases, arguments.pods):
        results.append(result)
        print(*result[1], flush=True)
    heading = (
        "RELEASE",
        "EXPLAINED",
        "RUNNING",
        "AFTER-KILL",
        "ENDED-FREE",
        "STORM-REFUSED",
        "STEERED",
        "NEW-POD-P50/P99",
        "WEBHOOK-P50/P99",
        "RANDOM-PODS",
        "UPGRADED",
    )
    echo_table([heading, *(row for _, row, _ in results)])
    missed = judge([target for _, _, targets in results for target in targets])
    return 0 if not missed and all(kept_promises for kept_promises, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
