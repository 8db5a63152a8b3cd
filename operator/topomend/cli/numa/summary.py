"""``kubectl numa show --summary``: of each pool what is free, the share that typical pods cannot use, and why.

Typical are the pods that hold something on the pool's nodes, those that wait and may go there, and those that have
ended there and are still objects; or the pods of a file. Owns reading them and the layout. Leaves the rest to
``decide``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod, placement_of
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.picture import Source
from topomend.cli.output.console import echo, echo_data
from topomend.cli.output.formats import DOCUMENTS, WIDE, echo_document
from topomend.cli.output.table import echo_table
from topomend.cli.output.terminal import BAD, GOOD, PLAIN, UNSURE, Style
from topomend.decide.pools.pools import Culprit, KindsOf, Pool, PoolResource, pools
from topomend.decide.pools.typical_pods import (
    MAX_KINDS,
    NODES_TRIED,
    Kinds,
    TypicalPod,
    kinds_held,
    kinds_of,
    kinds_waiting,
    merged,
    of_each_namespace,
    times,
)
from topomend.explain.explanation import is_bytes
from topomend.kube.resources import NODE_TOPOLOGIES, PODS
from topomend.model.nodes.node import Node
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import REFUSAL_PREFIX, Placement
from topomend.model.quantity import format_bytes
from topomend.picture.form import PICTURES
from topomend.wire.document import MalformedObject
from topomend.wire.pods.pod import read_pod

_SHOWN_KINDS = 3
"""How many kinds of typical pods are shown without ``-o wide``."""

MOST_UNSURE = 0.5
"""The largest share of what is free and unusable that is not painted as bad."""


@dataclass(frozen=True)
class Seen:
    """A pod that does not run. ``node``: where it ended; empty for one that waits. ``problem``: why it is not read."""

    pod: Pod
    placement: Placement
    node: str = ""
    problem: str = ""


def show_summary(
    cluster: Cluster, nodes: Sequence[str], asked: Sequence[RequestedPod], output: str, check: Callable[..., None]
) -> None:
    """Print the summary of the pools, or of these nodes. ``asked`` are the typical pods, by default the cluster's.

    ``check`` is told the names and which nodes publish, and raises what is wrong. Raises APIError, CannotAsk, BadInput.
    """
    typical = read_typical(cluster, asked)
    snapshot = typical.snapshot
    check(nodes, snapshot.publications.keys() | snapshot.unreadable.keys())
    found = pools(snapshot, typical.kinds_of, nodes)
    if output in DOCUMENTS:
        echo_document({"pools": [record_of(pool) for pool in found]}, output)
    elif output in PICTURES:
        echo_data(drawn(snapshot, found, output))
    else:
        print_pools(found, wide=output == WIDE)
    typical.echo_problems()
    if cluster.unread:
        echo(cluster.unread, err=True)


@dataclass(frozen=True)
class Typical:
    """A cluster with its typical pods. ``problems``: why pods are not counted."""

    snapshot: Snapshot
    kinds_of: KindsOf
    problems: Sequence[str] = ()

    def echo_problems(self) -> None:
        """Say which pods are not counted, the first of them."""
        for problem in self.problems[:_SHOWN_KINDS]:
            echo(f"a pod is not counted: {problem}", err=True)


def read_typical(cluster: Cluster, asked: Sequence[RequestedPod]) -> Typical:
    """The cluster as it is. ``asked`` are the typical pods, by default the cluster's. Raises APIError, CannotAsk."""
    sources = [source for source in cluster.readable_states if source.resource != NODE_TOPOLOGIES]
    sources.append(Source(NODE_TOPOLOGIES, cluster.read_published))
    if not asked:
        sources.append(cluster.if_readable(Source(PODS, read_seen, fields="status.phase!=Running")))
    picture = next(cluster.pictures(sources))
    snapshot = cluster.snapshot_of(picture)
    if asked:
        return Typical(snapshot, of_file(asked))
    seen: Sequence[Seen] = picture[PODS]
    return Typical(snapshot, of_cluster(snapshot, seen), [one.problem for one in seen if one.problem])


def read_seen(content: dict[str, Any]) -> Iterator[Seen]:
    """A pod that waits, was refused or has ended; none for one that starts on its node, which is published there."""
    status, node = content.get("status", {}), content["spec"].get("nodeName", "")
    phase, name = status.get("phase"), f"{content['metadata']['namespace']}/{content['metadata']['name']}"
    refused = phase == "Failed" and str(status.get("message", "")).startswith(REFUSAL_PREFIX)
    if node and phase not in ("Succeeded", "Failed"):
        return
    try:
        yield Seen(read_pod(content), placement_of(content), "" if refused else node)
    except MalformedObject as error:
        yield Seen(Pod("", ""), Placement(), problem=f"{name}: {error}")


def of_cluster(snapshot: Snapshot, seen: Iterable[Seen]) -> KindsOf:
    """The pods that the cluster shows: on the nodes, waiting for them, or ended there."""
    read = [one for one in seen if not one.problem]
    waiting = of_each_namespace((one.pod, one.placement) for one in read if not one.node)

    def kinds(nodes: Sequence[Node]) -> Kinds:
        names = {node.name for node in nodes}
        held = [kinds_held(snapshot.publications[node.name].remaining) for node in nodes]
        ended = kinds_of(one.pod for one in read if one.node in names)
        return merged([*held, ended, kinds_waiting(waiting, nodes[:NODES_TRIED])])

    return kinds


def of_file(asked: Iterable[RequestedPod]) -> KindsOf:
    """The pods of a file, each as often as its workload has it, on nodes that it may go to."""
    return lambda nodes: merged(times(kinds_waiting([(one.pod, one.placement)], nodes), one.replicas) for one in asked)


def print_pools(found: Iterable[Pool], *, wide: bool) -> None:
    """Print a block for each pool."""
    for number, pool in enumerate(found):
        if number:
            echo()
        _print_pool(pool, wide=wide)


def _print_pool(pool: Pool, *, wide: bool) -> None:
    echo(_heading(pool))
    if not pool.resources:
        return
    echo_table([_RESOURCES, *_resource_rows(pool)], [*_resource_styles(pool)])
    if not pool.typical:
        echo(_NO_TYPICAL)
        return
    shown = pool.typical if wide else pool.typical[:_SHOWN_KINDS]
    styles = [{"ADMITTED ON": _style_of_admitted(admitting, len(pool.nodes))} for _, admitting in shown]
    echo_table([_KINDS, *(_kind_row(pool, *each) for each in shown)], styles)
    if more := len(pool.typical) - len(shown):
        echo(f"and {more} more kind{'' if more == 1 else 's'} of pods: -o wide shows {'it' if more == 1 else 'them'}")
    if uncovered := _uncovered(pool):
        echo(uncovered)


_RESOURCES = ("RESOURCE", "FREE", "UNUSABLE", "FRAGMENTED", "MOST ON", "FREED BY THE END OF ANY OF")
_KINDS = ("TYPICAL POD", "PODS", "ADMITTED ON")

_NO_TYPICAL = (
    "no pod holds, asks for or has asked for any of it here, so no share is known; name typical pods with -f FILE"
)


def _heading(pool: Pool) -> str:
    left_out = pool.size - len(pool.nodes)
    count = f"{len(pool.nodes)} node{'' if len(pool.nodes) == 1 else 's'}"
    rest = f", {left_out} left out: not Ready, cordoned, or their state is unknown" if left_out else ""
    return f"pool {pool.name}   {count}{rest}"


def _uncovered(pool: Pool) -> str:
    """That not all that pods ask for is covered; empty where it is."""
    uncovered = [each.name for each in pool.resources if each.fragmented and each.covered < 1]
    if not uncovered:
        return ""
    least = min(each.covered for each in pool.resources if each.fragmented)
    return f"only the {MAX_KINDS} largest kinds count: of {', '.join(uncovered)} they ask for {least:.0%} at least"


def drawn(snapshot: Snapshot, found: Sequence[Pool], output: str) -> str:
    """A page of the pools: their nodes, and how fragmented they are."""
    # The drawings are loaded where one is asked for.
    from topomend.picture import pool  # noqa: PLC0415
    from topomend.picture.drawing import page  # noqa: PLC0415
    from topomend.picture.drawing.document import Picture as Drawn  # noqa: PLC0415
    from topomend.picture.drawing.document import Table  # noqa: PLC0415

    sections = []
    for each in found:
        states = [snapshot.publications[name].state for name in each.nodes]
        notes = [_heading(each), "" if each.typical or not each.resources else _NO_TYPICAL, _uncovered(each)]
        tables = [Table(f"What is free in pool {each.name}", _RESOURCES, [*_filled(_resource_rows(each))])]
        if each.typical:
            kinds = [_kind_row(each, *kind) for kind in each.typical]
            tables.append(Table(f"Typical pods of pool {each.name}", _KINDS, kinds))
        sections.append(pool.section_of(pool.PoolSubject(each, states, [*filter(None, notes)]), tables))
    title = f"Pool {found[0].name}" if len(found) == 1 else f"{len(found)} pools and how fragmented they are"
    return page.written(Drawn(title, sections), output)


def _filled(rows: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The rows, where a cell that is empty for being the same as above is named again: each row is read by itself."""
    above: tuple[str, ...] = ()
    for row in rows:
        above = tuple(cell or before for cell, before in zip_longest(row, above, fillvalue=""))
        yield above


def _resource_rows(pool: Pool) -> Iterator[tuple[str, ...]]:
    return (row for resource in pool.resources for row in _rows(resource))


def _rows(resource: PoolResource) -> Iterator[tuple[str, ...]]:
    """A line for the resource, and one for each further node."""
    name, fragmented = resource.name, resource.fragmented
    unusable = _amount(name, fragmented.unusable) if fragmented else "-"
    cells = name, _amount(name, resource.free), unusable, _share(fragmented.share if fragmented else None)
    first, *others = [_culprit(name, culprit) for culprit in resource.culprits] or [("-", "-")]
    yield (*cells, *first)
    yield from (("", "", "", "", *each) for each in others)


def _resource_styles(pool: Pool) -> Iterator[Mapping[str, Style]]:
    """Those of the cells of each line of ``_resource_rows``, by their headings."""
    for resource in pool.resources:
        style = _style_of_share(resource.fragmented.share if resource.fragmented else None)
        yield {"UNUSABLE": style, "FRAGMENTED": style}
        yield from ({} for _ in resource.culprits[1:])


def _style_of_share(share: float | None) -> Style:
    """Of a share of what is free that typical pods cannot use: none, up to a half, or more."""
    if share is None:
        return PLAIN
    if not share:
        return GOOD
    return UNSURE if share <= MOST_UNSURE else BAD


def _style_of_admitted(admitting: int, nodes: int) -> Style:
    """Of the number of nodes that admit a pod: all of them, some, or none."""
    if not admitting:
        return BAD
    return GOOD if admitting == nodes else UNSURE


def _culprit(resource: str, culprit: Culprit) -> tuple[str, str]:
    pods = ", ".join(f"{pod.namespace}/{pod.name}" for pod in culprit.pods)
    return f"{culprit.node} ({_amount(resource, culprit.fragmented.unusable)})", pods or "-"


def _kind_row(pool: Pool, typical: TypicalPod, admitting: int) -> tuple[str, str, str]:
    return asks_text(typical), str(typical.number), f"{admitting} of {len(pool.nodes)}"


def asks_text(typical: TypicalPod) -> str:
    """What one pod of a kind asks for, in words."""
    return " ".join(f"{resource}={_amount(resource, amount)}" for resource, amount in of_one(typical).items())


def of_one(typical: TypicalPod) -> Mapping[str, float]:
    """What one pod of a kind asks for, on average."""
    return {resource: amount / typical.number for resource, amount in sorted(typical.asked.items())}


def _amount(resource: str, amount: float) -> str:
    return format_bytes(round(amount)) if is_bytes(resource) else f"{amount:.1f}".removesuffix(".0")


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def record_of(pool: Pool) -> dict[str, Any]:
    """What programs read; docs/reference.md lists the fields."""
    return {
        "name": pool.name,
        "nodes": len(pool.nodes),
        "leftOut": pool.size - len(pool.nodes),
        "resources": [_resource_record(resource) for resource in pool.resources],
        "typicalPods": [
            {"number": typical.number, "asks": dict(of_one(typical)), "admittedOn": admitting}
            for typical, admitting in pool.typical
        ],
    }


def _resource_record(resource: PoolResource) -> dict[str, Any]:
    fragmented = resource.fragmented
    return {
        "resource": resource.name,
        "free": resource.free,
        "unusable": fragmented.unusable if fragmented else None,
        "fragmentation": fragmented.share if fragmented else None,
        "covered": resource.covered,
        "mostOn": [
            {
                "node": culprit.node,
                "free": culprit.fragmented.free,
                "unusable": culprit.fragmented.unusable,
                "pods": [{"namespace": pod.namespace, "name": pod.name} for pod in culprit.pods],
            }
            for culprit in resource.culprits
        ],
    }
