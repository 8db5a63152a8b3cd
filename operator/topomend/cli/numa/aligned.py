"""``kubectl numa aligned``: the NUMA alignment of running containers, and why some are not pinned.

Owns the flags and the output. Leaves the judgement to ``alignment.running``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click

from topomend.alignment.container import Alignment
from topomend.alignment.running import RunningContainer, judge
from topomend.cli.numa.alignment_rows import VIEWS, drawn
from topomend.cli.numa.cluster.arguments.pod_argument import pod_of_cluster, short_name
from topomend.cli.numa.cluster.cluster import Cluster, cluster_options
from topomend.cli.numa.cluster.completion import complete_nodes, complete_pods
from topomend.cli.numa.cluster.devices.claims import claimed_by_container
from topomend.cli.numa.cluster.picture import Picture, Source
from topomend.cli.output.console import echo, echo_data
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput
from topomend.cli.output.formats import Printer, Row, check_watch, output_option, watch_option
from topomend.kube.resources import NODES, PODS
from topomend.model.pods.running_pod import RunningPod
from topomend.picture.form import PICTURES
from topomend.wire.document import MalformedObject
from topomend.wire.pods.running_pod import read_running_pod

_EXAMPLES = """\b
Examples:
  kubectl numa aligned                          # the containers of the namespace
  kubectl numa aligned pod/train-9              # the containers of one pod, and why one is not pinned
  kubectl numa aligned -A --by node             # each node's containers, counted by alignment
  kubectl numa aligned -A --by owner -o json
  kubectl numa aligned -A --by node -o html > aligned.html
  kubectl numa aligned -A --node gpu-01 --watch
"""


@dataclass(frozen=True)
class Filters:
    """The containers to show: of the named pods or of all, and in the selected namespace or in all."""

    pods: tuple[str, ...]
    all_namespaces: bool
    selector: str
    node: str
    by: str


@click.command(epilog=_EXAMPLES)
@click.argument("pods", nargs=-1, metavar="[pod/NAME]...", shell_complete=complete_pods)
@click.option("-A", "--all-namespaces", is_flag=True, help="The containers of every namespace.")
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Only containers of pods with these labels, such as app=train.",
)
@click.option("--node", default="", metavar="NODE", shell_complete=complete_nodes, help="Only containers on this node.")
@click.option(
    "--by",
    type=click.Choice(list(VIEWS)),
    default="container",
    show_default=True,
    help="A line for each container, or counts for each workload or node.",
)
@output_option(pictures=True)
@watch_option
@cluster_options
@click.pass_context
def aligned(context: click.Context, /, *, cluster: Cluster, output: str, watch: bool, **filters: Any) -> None:
    """Show on which NUMA nodes running containers have their CPUs, memory and devices.

    \b
    numa-node  everything that the container uses is on one NUMA node
    socket     it uses several NUMA nodes of one socket
    split      it uses NUMA nodes of several sockets
    floating   memory or devices are pinned, but its shared CPUs span other NUMA nodes too
    unpinned   nothing is pinned, and Linux runs it anywhere; REASON says why
    unknown    its node does not publish its allocations, or its claims cannot be read

    Devices by resource claims (DRA) count where their ResourceSlices place them; their resource is the driver.

    DISTANCE is the largest distance between two NUMA nodes in use, as the firmware reports it; 10 is local. If you name
    pods, the command exits with 1 if one of their containers is not on a single NUMA node, and with 3 if that is
    unknown.
    """
    check_watch(output, watch=watch)
    asked = replace(given := Filters(**filters), pods=tuple(map(short_name, given.pods)))
    if asked.node:
        _check_node(cluster, asked.node)
    view = VIEWS[asked.by]
    hidden = 1 if view.namespaced and not asked.all_namespaces else 0
    printer = Printer(output, view.heading[hidden:], view.wide)
    containers: list[RunningContainer] = []
    sources = [*cluster.readable_states, _pods_source(cluster, asked)]
    for number, picture in enumerate(cluster.pictures(sources, watch=watch)):
        claimed = claimed_by_container(cluster, picture[PODS], _namespace(cluster, asked))
        containers = list(judge(cluster.snapshot_of(picture), picture[PODS], claimed))
        rows = [replace(row, cells=row.cells[hidden:]) for row in view.rows(containers)]
        if number:
            printer.next(rows)
            continue
        _check_pods(cluster, asked, picture)
        if output in PICTURES:
            echo_data(drawn(asked.by, containers, output))
            continue
        _print_first(cluster, asked, printer, rows)
        if asked.pods and asked.by == "container" and printer.for_people:
            _echo_reasons(containers)
    if cluster.unread:
        echo(cluster.unread, err=True)
    if asked.pods:
        context.exit(_exit_code(containers))


def _print_first(cluster: Cluster, asked: Filters, printer: Printer, rows: Sequence[Row]) -> None:
    if rows or not printer.for_people:
        printer.first(rows, {f"{asked.by}s": [row.record for row in rows]})
        return
    if not asked.all_namespaces:
        cluster.check_namespace()
    where = "" if asked.all_namespaces else f" in namespace {cluster.namespace}"
    echo(f"No {'matching ' if asked.selector or asked.node else ''}container runs{where}.", err=True)


def _exit_code(containers: Iterable[RunningContainer]) -> int:
    alignments = {running.aligned.alignment for running in containers}
    if alignments - {Alignment.NUMA_NODE, Alignment.UNKNOWN}:
        return NO
    return YES if alignments == {Alignment.NUMA_NODE} else NOT_KNOWN


def _pods_source(cluster: Cluster, asked: Filters) -> Source:
    """The pods that have not ended. The API server filters them by node; this module filters them by name."""
    fields = [
        "status.phase!=Failed",
        "status.phase!=Succeeded",
        *([f"spec.nodeName={asked.node}"] if asked.node else []),
    ]
    bound = partial(_bound_pods, asked.pods)
    return Source(PODS, bound, _namespace(cluster, asked), ",".join(fields), asked.selector)


def _namespace(cluster: Cluster, asked: Filters) -> str:
    return "" if asked.all_namespaces else cluster.namespace


def _bound_pods(names: Sequence[str], content: dict[str, Any]) -> Iterable[RunningPod]:
    name = content["metadata"]["name"]
    if names and name not in names:
        return []
    try:
        return [read_running_pod(content)]
    except MalformedObject as error:
        echo(f"pod {name} is skipped: {error}", err=True)
        return []


def _check_node(cluster: Cluster, node: str) -> None:
    names = cluster.names(NODES)
    if names and node not in names:
        raise cluster.no_node(node, names)


def _check_pods(cluster: Cluster, asked: Filters, picture: Picture) -> None:
    """Raise BadInput for a named pod that is not there, or that has ended."""
    listed = {pod.pod.name for pod in picture[PODS]}
    for name in asked.pods:
        if name not in listed:
            phase = pod_of_cluster(cluster, name).content["status"]["phase"]
            raise BadInput(f"no container of pod {name} runs: the pod is {phase}")


def _echo_reasons(containers: Iterable[RunningContainer]) -> None:
    """A line for each reason why something of a container is not pinned, or not known."""
    for running in containers:
        for reason in running.reasons:
            echo(f"{running.pod.pod.name}/{running.container.name}: {reason.message}")
