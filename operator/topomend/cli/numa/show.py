"""``kubectl numa show``: the NUMA nodes of each node, and the containers with exclusive resources on them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.numa.cluster.claims import DevicePlaces, device_places
from topomend.cli.numa.cluster.cluster import (
    NOTHING_PUBLISHED,
    Cluster,
    cluster_options,
)
from topomend.cli.numa.cluster.completion import complete_published_nodes
from topomend.cli.numa.cluster.picture import Source
from topomend.cli.numa.cluster.pod_argument import pods_of_file
from topomend.cli.numa.drawing import draw, holdings, styled
from topomend.cli.numa.summary import show_summary
from topomend.cli.output.console import echo, echo_styled
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.cli.output.formats import DOCUMENTS, NAME, WIDE, Printer, Row, output_option, watch_option
from topomend.kube.client import NODE_TOPOLOGIES
from topomend.model.claimed_device import ContainerClaim
from topomend.wire.document import MalformedObject
from topomend.wire.group import GROUP
from topomend.wire.published.claims import read_container_claims

_EXAMPLES = """\b
Examples:
  kubectl numa show                    # every node
  kubectl numa show gpu-01 gpu-02
  kubectl numa show gpu-01 -o wide     # with a line for each container
  kubectl numa show gpu-01 --watch
  kubectl numa show --summary          # pools, and how fragmented they are
  kubectl numa show --summary -f pods.yaml
  kubectl numa show -o json | jq '.items[].status.summary'
"""


@click.command(epilog=_EXAMPLES)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_published_nodes)
@output_option()
@watch_option
@click.option(
    "--summary", is_flag=True, help="Show pools of nodes instead, and which share of what is free is unusable."
)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    default="",
    type=click.Path(),
    help="With --summary: the typical pods, Pods and workloads; - is stdin. Default: those of the cluster.",
)
@cluster_options
def show(  # noqa: PLR0913  one for each flag
    *, cluster: Cluster, nodes: tuple[str, ...], output: str, watch: bool, summary: bool, filename: str
) -> None:
    """Draw the nodes: one character a core, one letter a container.

    -o json and yaml print the NodeTopology objects. Exits with 3 if no node publishes one.

    With --summary, each pool of nodes: what is free, and the share of it that typical pods cannot use because the
    kubelets of the nodes where it is free would refuse them, by replay; the nodes where most of that is, and the pods
    without which there would be less. Typical pods are those that hold something there, that wait, or have ended.
    """
    if summary:
        if watch or output == NAME:
            raise BadInput(
                f"--summary with {'--watch' if watch else '-o name'}: it is printed once, for no next command"
            )
        show_summary(cluster, nodes, pods_of_file(filename, cluster) if filename else (), output, _check)
    elif filename:
        raise BadInput("-f names the typical pods of --summary: give --summary too")
    elif output in DOCUMENTS or output == NAME:
        _show_objects(cluster, nodes, output, watch=watch)
    else:
        _show_drawings(cluster, nodes, wide=output == WIDE, watch=watch)


def _show_objects(cluster: Cluster, nodes: Sequence[str], output: str, *, watch: bool) -> None:
    printer = Printer(output, ())
    for number, picture in enumerate(
        cluster.pictures([Source(NODE_TOPOLOGIES, lambda content: [content])], watch=watch)
    ):
        published = picture[NODE_TOPOLOGIES]
        chosen = [item for item in published if not nodes or item["metadata"]["name"] in nodes]
        rows = [_object_row(item) for item in chosen]
        if number:
            printer.next(rows)
            continue
        _check(nodes, {item["metadata"]["name"] for item in published})
        printer.first(rows, {"apiVersion": "v1", "kind": "List", "items": chosen})


def _object_row(content: dict[str, Any]) -> Row:
    name = content["metadata"]["name"]
    return Row((name,), (), content, f"nodetopology.{GROUP}/{name}")


def _show_drawings(cluster: Cluster, nodes: Sequence[str], *, wide: bool, watch: bool) -> None:
    drawn: dict[str, list[str]] = {}
    problem = ""
    for picture in cluster.pictures(_sources(cluster), watch=watch):
        published = [one.publication for one in picture[NODE_TOPOLOGIES]]
        snapshot = cluster.snapshot_of({**picture, NODE_TOPOLOGIES: published})
        claims = {one.node: one.claims for one in picture[NODE_TOPOLOGIES] if one.claims}
        known = snapshot.publications.keys() | snapshot.unreadable.keys()
        if not drawn:
            _check(nodes, known)
        shown = nodes or sorted(known)
        places = device_places(cluster) if claims.keys() & set(shown) else DevicePlaces()
        if places.problem and places.problem != problem:
            echo(places.problem, err=True)
        problem = places.problem
        before, drawn = (
            drawn,
            {name: list(_lines(snapshot, name, claims.get(name, ()), places, wide=wide)) for name in shown},
        )
        for name, lines in drawn.items():
            if before.get(name) != lines:
                _echo_drawing(lines)


def _echo_drawing(lines: Iterable[str]) -> None:
    for line in lines:
        if parts := list(styled(line)):
            echo_styled(*parts)
        else:
            echo(line)
    echo()


@dataclass(frozen=True)
class _Published:
    """What a node publishes, and the devices that its containers have by claims."""

    node: str
    publication: Any
    claims: tuple[ContainerClaim, ...]


def _sources(cluster: Cluster) -> list[Source]:
    """Where the nodes, their published states and their claims are read."""
    nodes = [source for source in cluster.readable_states if source.resource != NODE_TOPOLOGIES]
    return [*nodes, Source(NODE_TOPOLOGIES, partial(_read, cluster))]


def _read(cluster: Cluster, content: dict[str, Any]) -> Iterable[_Published]:
    name = content["metadata"]["name"]
    try:
        claims = read_container_claims(content)
    except MalformedObject as error:
        echo(f"the claims of {name} are skipped: {error}", err=True)
        claims = ()
    return [_Published(name, publication, claims) for publication in cluster.read_published(content)]


def _lines(
    snapshot: Snapshot, node: str, claims: Sequence[ContainerClaim], places: DevicePlaces, *, wide: bool
) -> Iterable[str]:
    publication = snapshot.publications.get(node)
    if publication is None:
        yield f"{node}   {snapshot.why_unknown(node)}"
        return
    yield from draw(publication.state, claims, places.numa_node)
    if wide:
        yield from holdings(publication.state, claims)
    if publication.problem:
        yield publication.problem


def _check(names: Sequence[str], published: Collection[str]) -> None:
    """Raise CannotAsk if no node publishes, BadInput for a name without a NodeTopology."""
    if not published:
        raise CannotAsk(NOTHING_PUBLISHED)
    for name in names:
        if name not in published:
            near = did_you_mean(name, published) or f"; there are: {', '.join(sorted(published))}"
            raise BadInput(f"no NodeTopology is called {name}{near}")
