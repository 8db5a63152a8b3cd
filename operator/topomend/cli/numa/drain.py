"""``kubectl numa drain``: ungate every pod and finish open relaunches, before topomend is deleted or after.

Owns flags and output; the work is left to the room ``drain``.
"""

import click

from topomend.cli.failures import NO
from topomend.cli.numa.cluster import Cluster, cluster_options

_EXAMPLES = """\b
Examples:
  kubectl numa drain --dry-run      # what would be done
  kubectl numa drain && kubectl delete --ignore-not-found -k deploy
  kubectl delete --ignore-not-found -k deploy & kubectl numa drain
"""


@click.command(epilog=_EXAMPLES)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--timeout",
    "seconds",
    type=click.IntRange(1, 3600),
    default=60,
    show_default=True,
    help="Seconds to wait for the operator's pods to end, and for what cannot be done at once.",
)
@click.option(
    "--operator-namespace",
    metavar="NAME",
    default="topomend-system",
    show_default=True,
    help="The operator's own namespace.",
)
@cluster_options
@click.pass_context
def drain(context: click.Context, /, *, cluster: Cluster, dry_run: bool, seconds: int, operator_namespace: str) -> None:
    """Leave nothing of topomend on any pod: stop gating, stop the operator, let every pod go.

    Relaunches that have begun are finished: a pod of which only a record is left is created. Pods keep running. Works
    before topomend is deleted and after, and as often as you like. Needs a cluster administrator's rights.

    Exits with 1 if something is left, and says what and why. `kubectl apply -k deploy` installs everything again.

    An operator that runs outside the cluster without --leader-elect is not stopped: stop it first.
    """
    # Imported here: --help and bad input do not need it.
    from topomend.drain.drain import Drain  # noqa: PLC0415
    from topomend.drain.journal import Journal  # noqa: PLC0415

    journal = Journal(click.echo, dry=dry_run)
    Drain(cluster.client, operator_namespace, journal, seconds).run()
    for thing, why in journal.left:
        click.echo(f"left: {thing}: {why}", err=True)
    click.echo(journal.summary() + (f"; {len(journal.left)} left" if journal.left else ""))
    if journal.left:
        context.exit(NO)
