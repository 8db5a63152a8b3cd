"""``python -m verify.versions v1.30.4 v1.32.5 ...``: try topomend's promises on real clusters of other releases.

On each release, as installed (``verify/e2e/e2e_story.py``; as root): the image and ``deploy/`` in real containers, from
``kubectl apply`` through refusals, a storm, kills and an upgrade of topomend to its removal.

On each release, in a sandbox with several NUMA nodes: a pod that is refused as the operator is killed with SIGKILL;
pods of a steered namespace, of which no kubelet refuses any; how long requests for such pods take at 50 a second,
beside pods that nothing gates, and how long the API server waits for the webhook; and random pods, of which simulate
says what each kubelet answers (``tests/live/test_agreement.py``). Then its control plane is upgraded to the next one of
the releases while pods are relaunched, gated and braked.

Prints two tables with a row for each release. Exits with 1 if a promise is broken or a target missed. On a machine that
does not allow containers, the first table is left out, with the reason.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from tests.waiting import TimedOut
from tools.commands import Unavailable
from verify.e2e import prerequisites
from verify.targets import Target, judge
from verify.versions.cluster import say
from verify.versions.installed import COLUMNS, StoryFailed, tell_story
from verify.versions.trial import Row, try_release

from topomend.cli.output.table import echo_table
from topomend.sandbox import SandboxError
from topomend.sandbox.releases.build import ensure_binary
from topomend.sandbox.releases.go_modules import NotARelease, minor_of

HEADING = (
    "RELEASE",
    "AFTER-KILL",
    "ENDED-FREE",
    "STEERED",
    "NEW-POD-P50/P99",
    "WEBHOOK-P50/P99",
    "RANDOM-PODS",
    "UPGRADED",
)

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


def stories(releases: Sequence[str]) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """For each release, whether the story as installed was as promised, and its row."""
    for release in releases:
        say(f"{release} as installed")
        try:
            row = release, *tell_story(release)
        except StoryFailed as error:
            yield False, (release, *["-"] * (len(COLUMNS) - 1), str(error))
        else:
            yield True, row


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
    not_told = ""
    try:
        prerequisites.check()
    except prerequisites.MissingPrograms as error:
        parser.error(str(error))
    except Unavailable as error:
        not_told = str(error)
    told = [] if not_told else list(_printed(stories(arguments.releases)))
    tried = list(_printed(rows(arguments.releases, arguments.pods)))
    if not_told:
        say(f"NOT RUN as installed: {not_told}")
    else:
        echo_table([("RELEASE", *COLUMNS), *(row for _, row in told)])
    echo_table([HEADING, *(row for _, row, _ in tried)])
    missed = judge([target for _, _, targets in tried for target in targets])
    kept = [result[0] for result in (*told, *tried)]
    return 0 if not missed and all(kept) else 1


_Result = TypeVar("_Result", bound=tuple[Any, ...])


def _printed(results: Iterator[_Result]) -> Iterator[_Result]:
    """The same results, each row printed as it comes: all of them take an hour."""
    for result in results:
        print(*result[1], flush=True)
        yield result


if __name__ == "__main__":
    sys.exit(main())
