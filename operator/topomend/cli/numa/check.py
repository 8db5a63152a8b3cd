"""``kubectl numa check``: whether topomend is installed, and whether every node's agent publishes a usable state."""

import time

import click

from topomend.cli.failures import NO, CannotAsk
from topomend.cli.numa.cluster import INSTALL, Cluster, cluster_options
from topomend.kube.client import NODE_TOPOLOGIES, RELAUNCHES, Resource
from topomend.kube.errors import NotFound

POLL = 1.0


@click.command()
@click.option("--wait", "seconds", type=click.IntRange(0, 3600), default=0, help="Seconds to wait until all is well.")
@cluster_options
@click.pass_context
def check(context: click.Context, /, *, cluster: Cluster, seconds: int) -> None:
    """Say in a line each what is not as it should be; exits with 1 if anything is not, with 3 if there is no node."""
    deadline = time.monotonic() + seconds
    while (problems := _problems(cluster)) and time.monotonic() < deadline:
        time.sleep(POLL)
    for problem in problems:
        click.echo(problem)
    if problems:
        context.exit(NO)
    click.echo("Every node publishes its topology.")


def _problems(cluster: Cluster) -> list[str]:
    missing = [kind.plural for kind in (NODE_TOPOLOGIES, RELAUNCHES) if not _served(cluster, kind)]
    if missing:
        return [f"{kind}.topomend.io: the API server serves no such kind; {INSTALL}" for kind in missing]
    snapshot = cluster.snapshot()
    if not snapshot.nodes:
        raise CannotAsk("the cluster has no nodes: there is nothing to check")
    problems = []
    for name in sorted(snapshot.nodes):
        problem = snapshot.why_unknown(name)
        if problem and name not in snapshot.publications and name not in snapshot.unreadable:
            problem += "; does the DaemonSet run there? kubectl get pods -n topomend-agent -o wide"
        if problem:
            problems.append(f"{name}: {problem}")
    return problems


def _served(cluster: Cluster, kind: Resource) -> bool:
    try:
        cluster.client.list(kind)
    except NotFound:
        return False
    return True
