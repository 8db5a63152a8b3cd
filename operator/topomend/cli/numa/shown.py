"""What ``kubectl numa show`` prints of nodes: drawings, objects or pictures.

Leaves flags to ``show``, which imports this.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from topomend.cache.snapshot import Snapshot
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.numa.cluster.cluster import NOTHING_PUBLISHED, Cluster
from topomend.cli.numa.cluster.picture import Source
from topomend.cli.numa.drawing import NumaNodeOf, draw, holdings, nowhere, styled
from topomend.cli.output.console import echo, echo_data, echo_styled
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.cli.output.formats import Printer, Row
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.model.devices.claimed_device import ContainerClaim
from topomend.model.machine import Machine
from topomend.wire.document import MalformedObject
from topomend.wire.group import GROUP
from topomend.wire.published.claims import read_container_claims
from topomend.wire.published.node_topology import read_machine

if TYPE_CHECKING:
    from topomend.cli.numa.cluster.devices.device_places import DevicePlaces


def show_objects(cluster: Cluster, nodes: Sequence[str], output: str, *, watch: bool) -> None:
    """Print the NodeTopology objects of these nodes, of all if none is named. Raises APIError, CannotAsk, BadInput."""
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
        check(nodes, {item["metadata"]["name"] for item in published})
        printer.first(rows, {"apiVersion": "v1", "kind": "List", "items": chosen})


def _object_row(content: dict[str, Any]) -> Row:
    name = content["metadata"]["name"]
    return Row((name,), (), content, f"nodetopology.{GROUP}/{name}")


def show_drawings(cluster: Cluster, nodes: Sequence[str], *, wide: bool, watch: bool) -> None:
    """Draw these nodes, all if none is named, on the terminal. Raises APIError, CannotAsk, BadInput."""
    drawn: dict[str, list[str]] = {}
    problem = ""
    for picture in cluster.pictures(_sources(cluster), watch=watch):
        published = [one.publication for one in picture[NODE_TOPOLOGIES]]
        snapshot = cluster.snapshot_of({**picture, NODE_TOPOLOGIES: published})
        claims = {one.node: one.claims for one in picture[NODE_TOPOLOGIES] if one.claims}
        known = snapshot.publications.keys() | snapshot.unreadable.keys()
        if not drawn:
            check(nodes, known)
        shown = nodes or sorted(known)
        places = _device_places(cluster) if claims.keys() & set(shown) else None
        before_problem, problem = problem, places.problem if places else ""
        if problem and problem != before_problem:
            echo(problem, err=True)
        numa_node_of = places.numa_node if places else nowhere
        before, drawn = (
            drawn,
            {name: list(_lines(snapshot, name, claims.get(name, ()), numa_node_of, wide=wide)) for name in shown},
        )
        for name, lines in drawn.items():
            if before.get(name) != lines:
                _echo_drawing(lines)


def show_picture(cluster: Cluster, nodes: Sequence[str], output: str) -> None:
    """Print these nodes, all if none is named, as one picture. Raises APIError, CannotAsk, BadInput."""
    # The drawings are loaded where one is asked for.
    from topomend.picture.drawing import page  # noqa: PLC0415
    from topomend.picture.drawing.document import Picture as Drawn  # noqa: PLC0415
    from topomend.picture.drawing.document import Section  # noqa: PLC0415
    from topomend.picture.machine import node  # noqa: PLC0415
    from topomend.picture.machine.facts import Subject  # noqa: PLC0415

    picture = next(cluster.pictures(_sources(cluster, whole=True)))
    by_name = {one.node: one for one in picture[NODE_TOPOLOGIES]}
    published = [one.publication for one in by_name.values()]
    snapshot = cluster.snapshot_of({**picture, NODE_TOPOLOGIES: published})
    known = snapshot.publications.keys() | snapshot.unreadable.keys()
    check(nodes, known)
    shown = nodes or sorted(known)
    claimed = any(by_name[name].claims for name in shown if name in by_name)
    places = _device_places(cluster) if claimed else None
    if places and places.problem:
        echo(places.problem, err=True)
    sections = []
    for name in shown:
        publication = snapshot.publications.get(name)
        if publication is None:
            sections.append(Section(f"Node {name}", words=[snapshot.why_unknown(name)]))
            continue
        one = by_name[name]
        state = replace(publication.state, machine=one.machine or publication.state.machine)
        subject = Subject(state, one.claims, places.numa_nodes if places else {}, problem=publication.problem)
        sections.append(node.section_of(subject))
    title = f"Node {shown[0]}" if len(shown) == 1 else f"{len(shown)} nodes and who holds what on them"
    echo_data(page.written(Drawn(title, sections), output))


def _device_places(cluster: Cluster) -> "DevicePlaces":
    # What it needs is loaded where a container has devices by claims.
    from topomend.cli.numa.cluster.devices.device_places import device_places  # noqa: PLC0415

    return device_places(cluster)


def _echo_drawing(lines: Iterable[str]) -> None:
    for line in lines:
        if parts := list(styled(line)):
            echo_styled(*parts)
        else:
            echo(line)
    echo()


class _Published(NamedTuple):
    """What a node publishes, and the devices that its containers have by claims.

    ``machine`` is the whole of it, with the hardware that replay does not read; None if it is malformed or not asked.
    """

    node: str
    publication: Any
    claims: tuple[ContainerClaim, ...]
    machine: Machine | None


def _sources(cluster: Cluster, *, whole: bool = False) -> list[Source]:
    """Where the nodes, their published states and their claims are read, and their ``whole`` machines if asked."""
    nodes = [source for source in cluster.readable_states if source.resource != NODE_TOPOLOGIES]
    return [*nodes, Source(NODE_TOPOLOGIES, partial(_read, cluster, whole))]


def _read(cluster: Cluster, whole: bool, content: dict[str, Any]) -> Iterable[_Published]:
    name = content["metadata"]["name"]
    try:
        claims = read_container_claims(content)
    except MalformedObject as error:
        echo(f"the claims of {name} are skipped: {error}", err=True)
        claims = ()
    try:
        machine = read_machine(content) if whole else None
    except MalformedObject:  # then its state is unreadable too, which is said
        machine = None
    return [_Published(name, publication, claims, machine) for publication in cluster.read_published(content)]


def _lines(
    snapshot: Snapshot, node: str, claims: Sequence[ContainerClaim], numa_node_of: NumaNodeOf, *, wide: bool
) -> Iterable[str]:
    publication = snapshot.publications.get(node)
    if publication is None:
        yield f"{node}   {snapshot.why_unknown(node)}"
        return
    yield from draw(publication.state, claims, numa_node_of)
    if wide:
        yield from holdings(publication.state, claims)
    if publication.problem:
        yield publication.problem


def check(names: Sequence[str], published: Collection[str]) -> None:
    """Raise CannotAsk if no node publishes, BadInput for a name without a NodeTopology."""
    if not published:
        raise CannotAsk(NOTHING_PUBLISHED)
    for name in names:
        if name not in published:
            near = did_you_mean(name, published) or f"; there are: {', '.join(sorted(published))}"
            raise BadInput(f"no NodeTopology is called {name}{near}")
