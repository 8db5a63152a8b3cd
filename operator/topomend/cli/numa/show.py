"""``kubectl numa show``: the NUMA nodes of each node, and the containers with exclusive resources on them."""

import json

import click
import yaml

from topomend.cli.failures import BadInput, CannotAsk
from topomend.cli.numa.cluster import NOTHING_PUBLISHED, Cluster, cluster_options
from topomend.cli.numa.render import draw
from topomend.kube.client import NODE_TOPOLOGIES


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@cluster_options
def show(*, cluster: Cluster, nodes: tuple[str, ...], output: str) -> None:
    """Draw the nodes: one character a core, one letter a container.

    Json and yaml print the NodeTopology objects themselves. Exits with 3 if no node publishes one.
    """
    if output != "table":
        published = cluster.own(NODE_TOPOLOGIES)
        _check(nodes, {item["metadata"]["name"] for item in published})
        chosen = [item for item in published if not nodes or item["metadata"]["name"] in nodes]
        content = {"apiVersion": "v1", "kind": "List", "items": chosen}
        click.echo(json.dumps(content, indent=1) if output == "json" else yaml.safe_dump(content, sort_keys=False))
        return
    snapshot = cluster.snapshot()
    known = snapshot.publications.keys() | snapshot.unreadable.keys()
    _check(nodes, known)
    for name in nodes or sorted(known):
        if name in snapshot.unreadable:
            click.echo(f"{name}   {snapshot.unreadable[name]}\n")
            continue
        publication = snapshot.publications[name]
        for line in draw(publication.state):
            click.echo(line)
        click.echo(f"{publication.problem}\n" if publication.problem else "")


def _check(names: tuple[str, ...], published: set[str]) -> None:
    """Raise CannotAsk if no node publishes, BadInput for a name without a NodeTopology."""
    if not published:
        raise CannotAsk(NOTHING_PUBLISHED)
    for name in names:
        if name not in published:
            raise BadInput(f"no NodeTopology is called {name}; there are: {', '.join(sorted(published))}")
