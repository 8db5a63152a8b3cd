"""``kubectl numa relaunches``: list the relaunches of refused pods, each with its step."""

import click

from topomend.cli.numa.cluster import Cluster, cluster_options
from topomend.cli.table import echo_table
from topomend.kube.client import RELAUNCHES
from topomend.model.relaunch import Relaunch
from topomend.wire.relaunch import read_relaunch


@click.command()
@click.option("-A", "--all-namespaces", is_flag=True, help="Those of every namespace.")
@cluster_options
def relaunches(*, cluster: Cluster, all_namespaces: bool) -> None:
    """List the relaunches of a namespace, oldest first."""
    namespace = "" if all_namespaces else cluster.namespace
    listed = [read_relaunch(content) for content in cluster.own(RELAUNCHES, namespace)]
    if not listed:
        click.echo("Nothing was relaunched." if all_namespaces else f"Nothing was relaunched in {namespace}.")
        return
    heading = ("NAMESPACE", "POD", "REFUSED-BY", "REASON", "ATTEMPT", "STEP", "NEW-POD", "SINCE")
    echo_table([heading, *map(_row, sorted(listed, key=lambda relaunch: (relaunch.creation_time, relaunch.name)))])


def _row(relaunch: Relaunch) -> tuple[str, ...]:
    return (
        relaunch.namespace,
        relaunch.pod_name,
        relaunch.refused_by,
        relaunch.reason,
        str(relaunch.attempt),
        relaunch.step.value,
        relaunch.new_name or "-",
        relaunch.creation_time,
    )
