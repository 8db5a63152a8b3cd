"""``kubectl numa check``: what is wrong with topomend, with nodes and with workloads, and what helps.

Owns the flags and the waiting. The checks are in ``check``, each with a code.
"""

import time
from datetime import UTC, datetime

import click

from topomend.check.catalogue import CHECKS, GROUPS, examine
from topomend.check.facts import Facts, Part
from topomend.check.finding import Finding, Report, Severity
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.numa.check.before import print_prospect
from topomend.cli.numa.check.cluster_facts import ClusterFacts
from topomend.cli.numa.check.printed import print_report
from topomend.cli.numa.cluster.cluster import Cluster, cluster_options
from topomend.cli.output.console import echo
from topomend.cli.output.failures import NO, NOT_KNOWN, BadInput, CannotAsk
from topomend.cli.output.formats import output_option

POLL_SECONDS = 2.0
"""The least time between two looks of ``--wait``."""

PATIENCE = 120
"""Seconds that ``--wait`` without a number waits."""

_EXAMPLES = """\b
Examples:
  kubectl numa check
  kubectl numa check --wait          # after an installation: wait at most two minutes
  kubectl numa check --before        # before an installation: what would change?
  kubectl numa check --skip TM213    # without that check; --skip TM3 leaves out all of workloads
  kubectl numa check -o json
"""


def _codes(_: click.Context, __: click.Parameter, codes: tuple[str, ...]) -> tuple[str, ...]:
    known = [*(item.code for item in CHECKS), *GROUPS]
    for code in codes:
        if code not in known:
            raise BadInput(f"--skip {code}: no such check{did_you_mean(code, known)}; docs/reference/checks.md has all")
    return codes


@click.command(epilog=_EXAMPLES)
@click.option(
    "--wait",
    "seconds",
    type=click.IntRange(0, 3600),
    is_flag=False,
    flag_value=PATIENCE,
    default=0,
    help=f"Seconds to wait for all errors to disappear; {PATIENCE} without a number.",
)
@click.option(
    "--skip",
    "skipped",
    metavar="CODE",
    multiple=True,
    callback=_codes,
    help="Leave a check out, or all of topomend itself (TM1), of nodes (TM2), of workloads (TM3). Repeatable.",
)
@click.option("--before", is_flag=True, help="Say what an installation would change on this cluster, and do nothing.")
@output_option()
@cluster_options
@click.pass_context
def check(  # noqa: PLR0913  what it is told
    context: click.Context, /, *, cluster: Cluster, seconds: int, skipped: tuple[str, ...], before: bool, output: str
) -> None:
    """Check topomend itself, each node's settings, and the workloads; say what is wrong and what to do.

    Each finding has a code; docs/reference/checks.md explains it. Checks for which you lack rights are listed as not
    done.

    Exits with 1 if there is an error, which warnings are not. Exits with 3 if there is none so far, but a check that
    could find one was not done, or if the cluster has no node.
    """
    if before:
        print_prospect(cluster, output)
        return
    deadline = time.monotonic() + seconds
    awaited = ""
    while True:
        began = time.monotonic()
        facts = _read(cluster)
        report = examine(facts, skipped)
        if not report.has_errors or time.monotonic() >= deadline:
            break
        awaited = _say_what_is_awaited(report, awaited)
        time.sleep(max(0.0, min(began + POLL_SECONDS, deadline) - time.monotonic()))
    print_report(report, output, nodes=len(facts.snapshot.nodes))
    if report.has_errors:
        context.exit(NO)
    if not report.is_complete:
        context.exit(NOT_KNOWN)


def _read(cluster: Cluster) -> Facts:
    facts = ClusterFacts(cluster, datetime.now(UTC)).read()
    if facts.is_installed and Part.NODES not in facts.unread and not facts.snapshot.nodes:
        raise CannotAsk("the cluster has no nodes: there is nothing to check")
    return facts


def _say_what_is_awaited(report: Report, before: str) -> str:
    """Say on stderr what ``--wait`` waits for, once until that is something else."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
    awaited = f"waiting: {_words(errors[0])}{more}"
    if awaited != before:
        echo(awaited, err=True)
    return awaited


def _words(finding: Finding) -> str:
    return f"{finding.code} {finding.subject}: {finding.message}"
