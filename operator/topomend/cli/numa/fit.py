"""``kubectl numa fit``: how many replicas of a pod the nodes would admit now, and where."""

from collections import Counter
from dataclasses import dataclass, replace

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.failures import NO, NOT_KNOWN, CannotAsk
from topomend.cli.numa.cluster import Cluster, cluster_options
from topomend.cli.numa.pod_argument import AskedPod, pod_of_file
from topomend.cli.table import echo_table
from topomend.decide.explanation import blocking_resources, numa_nodes_text
from topomend.decide.feasibility import UNKNOWN, NodeStatus, diagnose
from topomend.model.node_state import NodeState
from topomend.replay.admission import admit

MOST_REPLICAS = 10_000


@dataclass(frozen=True)
class Room:
    """The replicas that one node admits, their NUMA nodes, and the resources that the next replica lacks.

    ``replicas`` is None if the node's state is unknown.
    """

    node: str
    replicas: int | None
    places: str
    limit: str


@click.command()
@click.option(
    "-f", "--filename", metavar="FILE", required=True, help="A Pod, or a workload with a pod template; - is stdin."
)
@click.option(
    "--replicas", type=click.IntRange(1, MOST_REPLICAS), default=1, show_default=True, help="How many are wanted."
)
@cluster_options
@click.pass_context
def fit(context: click.Context, /, *, cluster: Cluster, filename: str, replicas: int) -> None:
    """Say how many replicas of a pod fit now, node by node.

    What other pods use of a node's totals is left to the scheduler. Exits with 1 if fewer fit than are wanted, with 3
    if that depends on a node whose state is not known.
    """
    asked = pod_of_file(filename)
    snapshot = cluster.snapshot()
    if not snapshot.nodes:
        raise CannotAsk("the cluster has no nodes")
    rooms = [*_rooms(snapshot, asked, replicas), *_rejected(snapshot, asked)]
    echo_table([("NODE", "REPLICAS", "NUMA", "LIMITED-BY"), *map(_row, rooms)])
    fitting = sum(room.replicas or 0 for room in rooms)
    unknown = [room.node for room in rooms if room.replicas is None]
    if fitting >= replicas or not unknown:
        click.echo(f"overall: {min(fitting, replicas)} of {replicas} fit now")
    else:
        nodes = f"{len(unknown)} node{'s' if len(unknown) != 1 else ''}"
        click.echo(f"overall: at least {fitting} of {replicas} fit now; {nodes} not known: kubectl numa check")
    if fitting < replicas:
        context.exit(NOT_KNOWN if unknown else NO)


def _rooms(snapshot: Snapshot, asked: AskedPod, wanted: int) -> list[Room]:
    return [
        _room(snapshot.publications[candidate.node].state, asked, wanted)
        for candidate in diagnose(snapshot, asked.pod, asked.placement).candidates
    ]


def _room(state: NodeState, asked: AskedPod, wanted: int) -> Room:
    """Admit replicas one after another until the node refuses one, or all ``wanted`` fit."""
    name, count_by_place = state.name, Counter[str]()
    for number in range(wanted):
        verdict, state = admit(state, replace(asked.pod, name=f"{asked.pod.name}-{number}", uid=""))
        if not verdict.admitted:
            return Room(name, count_by_place.total(), _counted(count_by_place), blocking_resources(verdict))
        count_by_place[numa_nodes_text(verdict).removeprefix("NUMA ") or "any"] += 1
    return Room(name, count_by_place.total(), _counted(count_by_place), "")


def _rejected(snapshot: Snapshot, asked: AskedPod) -> list[Room]:
    return [_no_room(rejected) for rejected in diagnose(snapshot, asked.pod, asked.placement).rejected]


def _no_room(rejected: NodeStatus) -> Room:
    if rejected.reason == UNKNOWN:
        return Room(rejected.node, None, "", f"not known: {rejected.explanation.removeprefix(f'{rejected.node}: ')}")
    return Room(rejected.node, 0, "", rejected.summary)


def _counted(count_by_place: Counter[str]) -> str:
    return " ".join(f"{place}:{count}" for place, count in sorted(count_by_place.items()))


def _row(room: Room) -> tuple[str, ...]:
    return (room.node, "?" if room.replicas is None else str(room.replicas), room.places or "-", room.limit or "-")
