"""``kubectl numa make-room``: the fewest pods whose end or eviction lets a pod run. It advises, and evicts nobody."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod, pod_file_option, pod_of_cluster, pod_of_file
from topomend.cli.numa.cluster.cluster import Cluster, cluster_options
from topomend.cli.numa.cluster.completion import complete_nodes, complete_pods
from topomend.cli.numa.cluster.pods.occupants import BoundPods
from topomend.cli.numa.cluster.volumes import located
from topomend.cli.output.console import echo, echo_answer, echo_data
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput, CannotAsk
from topomend.cli.output.formats import DOCUMENTS, JSON, TABLE, YAML, Printer, Row, echo_document, output_option
from topomend.decide.diagnosis.filters import filter_node
from topomend.decide.queue.room import Occupant, Occupied, Room, Tries, candidates, room_on
from topomend.explain.trace_text import numa_text
from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.model.bitmask import members
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import Placement
from topomend.picture.form import PICTURES

_EXAMPLES = """\b
Examples:
  kubectl numa make-room pod/train-9           # who has to go for it?
  kubectl numa make-room -f pod.yaml           # the same, before the pod is created
  kubectl numa make-room -f pod.yaml --node gpu-01
  kubectl numa make-room pod/train-9 -o html > room.html
"""

_TOO_MANY = "there were too many sets of pods to try them all; ask about one node with --node"


@dataclass(frozen=True)
class Advice:
    """What is known about room for the pod ``name``.

    ``room`` is None where no set of pods makes any. ``may_be_evicted``: the API server would evict its pods, by
    budgets and priorities. ``unknown``: the nodes whose state is unknown and which the scheduler may choose.
    ``is_complete``: without room no set was left untried.
    """

    name: str
    room: Room | None
    may_be_evicted: bool
    unknown: tuple[str, ...]
    is_complete: bool = True

    @property
    def code(self) -> int:
        """The exit code."""
        if self.room is not None and self.may_be_evicted:
            return YES
        return NO if self.is_complete and not self.unknown else NOT_KNOWN

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        room = self.room
        return {
            "pod": self.name,
            "node": room.node if room else "",
            "numaNodes": list(members(room.numa_nodes)) if room else [],
            "pods": [_record(pod) for pod in room.pods] if room else [],
            "leaving": [_record(pod) for pod in room.leaving] if room else [],
            "mayBeEvicted": self.may_be_evicted,
            "fewest": room.is_fewest if room else self.is_complete,
            "unknownNodes": list(self.unknown),
        }


@click.command("make-room", epilog=_EXAMPLES)
@click.argument("name", required=False, default="", metavar="[pod/NAME]", shell_complete=complete_pods)
@pod_file_option
@click.option(
    "--node", metavar="NODE", default="", shell_complete=complete_nodes, help="The node to ask. Default: every node."
)
@output_option(TABLE, JSON, YAML, pictures=True)
@cluster_options
@click.pass_context
def make_room_(  # noqa: PLR0913  one for each flag
    context: click.Context, /, *, cluster: Cluster, name: str, filename: str, node: str, output: str
) -> None:
    """Name the fewest pods that have to end, or to be evicted, before a pod can run. It ends nobody itself.

    Every smaller set of pods was tried, by totals and by replay of the kubelets. A pod is not named if its priority is
    above that of the waiting pod, if a PodDisruptionBudget keeps it, if its DaemonSet creates it again at once, or if
    the cluster needs it. Of as few, those with the lowest priority are named.

    Exits with 0 if there is room or evictions make it, with 1 if they do not, and with 3 if that is unknown.
    """
    if bool(name) == bool(filename):
        raise BadInput("name a pod, as in kubectl numa make-room pod/train-9, or give -f FILE")
    bound = BoundPods(cluster, node)
    asked = pod_of_file(filename, cluster) if filename else _waiting(cluster, name)
    snapshot = cluster.with_claims(cluster.snapshot_of(next(cluster.pictures(cluster.readable_states))))
    if NODE_TOPOLOGIES.plural in cluster.not_read:
        raise CannotAsk(cluster.unread)
    if node and node not in snapshot.nodes:
        raise cluster.no_node(node, snapshot.nodes)
    nodes = [node] if node else list(snapshot.nodes)
    asked, unlocated = located(cluster, asked)
    advice = advice_for(cluster, snapshot, asked, nodes, bound)
    if output in PICTURES:
        echo_data(drawn(advice, snapshot, output))
    else:
        _echo(advice, output)
    for problem in unlocated:
        echo(problem, err=True)
    if cluster.unread:
        echo(cluster.unread, err=True)
    if code := NOT_KNOWN if cluster.is_partial else advice.code:
        context.exit(code)


def _waiting(cluster: Cluster, name: str) -> RequestedPod:
    """The pod of this name, which does not run. Raises BadInput."""
    asked = pod_of_cluster(cluster, name)
    if asked.content.get("status", {}).get("phase") in ("Running", "Succeeded"):
        raise BadInput(f"pod {asked.pod.name} needs no room: its phase is {asked.content['status']['phase']}")
    return asked


def advice_for(
    cluster: Cluster, snapshot: Snapshot, asked: RequestedPod, nodes: Sequence[str], bound: BoundPods
) -> Advice:
    """Who has to go on one of ``nodes`` of all that are ``bound``: by eviction, or else by ending themselves.

    Raises APIError, CannotAsk.
    """
    placement = cluster.as_readable(asked.placement)
    unknown = _unknown_among(snapshot, asked.pod, placement, nodes)
    among = candidates(snapshot, asked.pod, placement, nodes)
    others = bound.others_than(asked, nodes)  # which waits for them: all that needs no pods comes before
    for may_be_evicted in (True, False):
        tries = Tries()
        room = room_on(among, asked.pod, others if may_be_evicted else _ending(others), tries)
        if room is not None:
            return Advice(asked.pod.name, room, may_be_evicted, unknown)
    return Advice(asked.pod.name, None, may_be_evicted=False, unknown=unknown, is_complete=tries.were_enough)


def _unknown_among(snapshot: Snapshot, pod: Pod, placement: Placement, nodes: Iterable[str]) -> tuple[str, ...]:
    """The nodes whose state is unknown, without those that the scheduler rejects whatever their state is."""
    requests = requests_of(pod)
    unknown = (name for name in nodes if not _is_known(snapshot, name))
    return tuple(name for name in unknown if not filter_node(snapshot.nodes[name], placement, requests))


def _is_known(snapshot: Snapshot, name: str) -> bool:
    publication = snapshot.publications.get(name)
    return publication is not None and not publication.problem


def _ending(occupied: Occupied) -> Occupied:
    """The same pods, of which each may end by itself."""
    return Occupied(
        {node: [replace(pod, stays="") for pod in occupants] for node, occupants in occupied.by_node.items()}
    )


def _echo(advice: Advice, output: str) -> None:
    if output in DOCUMENTS:
        echo_document(advice.record(), output)
        return
    room = advice.room
    if room is None:
        echo_answer([none_text(advice)])
        return
    if room.pods or room.leaving:
        Printer(output, ("NODE", "POD", "PRIORITY", "OWNER")).first([*_rows(room)], {})
    echo_answer(_lines(advice, room))


def drawn(advice: Advice, snapshot: Snapshot, output: str) -> str:
    """The picture of the node, with those marked that have to go."""
    # The drawings are loaded where one is asked for.
    from topomend.picture.drawing import page  # noqa: PLC0415
    from topomend.picture.machine import room  # noqa: PLC0415

    lines = [*_lines(advice, advice.room)] if advice.room else [none_text(advice)]
    state = snapshot.publications[advice.room.node].state if advice.room else None
    return page.written(room.picture_of(advice.name, advice.room, state, lines), output)


def none_text(advice: Advice) -> str:
    """What is said where no room was found."""
    if not advice.is_complete:
        return f"{advice.name}: no room was found, and {_TOO_MANY}{_unknown_text(advice)}"
    return f"{advice.name}: no node would admit it, whoever ended{_unknown_text(advice)}; see kubectl numa explain"


def _rows(room: Room) -> Iterable[Row]:
    for pod in (*room.leaving, *room.pods):
        owner = "is being deleted" if pod.leaving else pod.owner or "-"
        cells = room.node, pod.shown, str(pod.priority), owner
        yield Row((pod.uid,), cells, _record(pod), f"pod/{pod.name}")


def _lines(advice: Advice, room: Room) -> Iterable[str]:
    place = f"{room.node}{f' ({numa_text(room.numa_nodes)})' if room.numa_nodes else ''}"
    number = len(room.pods) + len(room.leaving)
    if not number:
        yield f"{advice.name} fits on {place} now: no pod has to go"
        return
    ended = "this pod has" if number == 1 else f"these {number} pods have"
    yield f"{advice.name} fits on {place} once {ended} ended"
    if not room.is_fewest:
        yield f"fewer may do: {_TOO_MANY}"
    if not advice.may_be_evicted:
        yield from (f"{pod.shown} may not be evicted for it, but it may end" for pod in room.pods)
        yield f"no eviction makes room for {advice.name}{_unknown_text(advice)}"
    elif owners := sorted({pod.owner for pod in room.pods if pod.owner}):
        yield f"{', '.join(owners)} will create new pods: see that none of them takes the place before {advice.name}"
    if lost := [pod.shown for pod in room.pods if not pod.owner]:
        yield f"nobody creates {', '.join(lost)} again"


def _unknown_text(advice: Advice) -> str:
    number = len(advice.unknown)
    return f"; the state of {number} node{'s' if number > 1 else ''} is unknown" if number else ""


def _record(pod: Occupant) -> dict[str, Any]:
    return {"namespace": pod.namespace, "name": pod.name, "priority": pod.priority, "owner": pod.owner}
