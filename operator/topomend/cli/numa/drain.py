"""``kubectl numa drain``: ungate every pod and finish open relaunches, before topomend is deleted or after.

Owns flags and output; the work is left to the room ``drain``.
"""

import click

from topomend.cli.numa.cluster.cluster import Cluster, whole_cluster_options
from topomend.cli.output.console import echo
from topomend.cli.output.failures import NO

_EXAMPLES = """\b
Examples:
  kubectl numa drain --dry-run      # print the steps, change nothing
  kubectl numa drain && kubectl delete --ignore-not-found -k deploy
  kubectl delete --ignore-not-found -k deploy & kubectl numa drain
"""


@click.command(epilog=_EXAMPLES)
@click.option("--dry-run", is_flag=True, help="Print what a drain would do, and change nothing.")
@click.option(
    "--timeout",
    "seconds",
    type=click.IntRange(1, 3600),
    default=60,
    show_default=True,
    help="Seconds to wait for the operator's pods to end, and to retry steps that fail at first.",
)
@click.option(
    "--operator-namespace",
    metavar="NAME",
    default="topomend-system",
    show_default=True,
    help="The operator's own namespace.",
)
@whole_cluster_options
@click.pass_context
def drain(context: click.Context, /, *, cluster: Cluster, dry_run: bool, seconds: int, operator_namespace: str) -> None:
    """Stop gating, stop the operator, ungate every pod, and remove everything of topomend from all pods.

    It is about all namespaces. Finishes relaunches that have begun: a pod that exists only in its record is created.
    Running pods keep running. Kueue's admission checks of topomend become inactive. You can drain before or after you
    delete topomend, and repeat it. It needs a cluster administrator's rights.

    Exits with 1 if something could not be drained, or a ClusterQueue still asks topomend, and says why.
    The operator's Deployment has no replicas then: `kubectl apply --server-side --force-conflicts -k deploy` installs
    everything again; with helm 4 upgrade with --force-conflicts.

    First stop any operator that runs outside the cluster without --leader-elect: a drain cannot stop it.
    """
    # Imported here: --help and bad input do not need it.
    from topomend.drain.drain import Drain  # noqa: PLC0415
    from topomend.drain.journal import Journal  # noqa: PLC0415

    journal = Journal(echo, dry=dry_run)
    Drain(cluster.client, operator_namespace, journal, seconds).run()
    for thing, why in journal.remaining:
        echo(f"not drained: {thing}: {why}", err=True)
    echo(journal.summary() + (f"; {len(journal.remaining)} not drained" if journal.remaining else ""))
    if journal.remaining:
        context.exit(NO)
