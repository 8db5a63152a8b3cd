"""``kubectl numa show --summary``: of each pool what is free, the share that typical pods cannot use, and why.

Typical are the pods that hold something on the pool's nodes, those that wait and may go there, and those that have
ended there and are still objects; or the pods of a file. Owns reading them and the layout. Leaves the rest to
``decide``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.cluster.picture import Source
from topomend.cli.numa.cluster.pod_argument import RequestedPod, placement_of
from topomend.cli.output.console import echo
from topomend.cli.output.formats import DOCUMENTS, WIDE, echo_document
from topomend.cli.output.table import echo_table
from topomend.decide.pools import Culprit, KindsOf, Pool, PoolResource, pools
from topomend.decide.typical_pods import (
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
from topomend.kube.client import NODE_TOPOLOGIES, PODS
from topomend.model.cluster import REFUSAL_PREFIX, Node, Placement
from topomend.model.pod import Pod
from topomend.model.quantity import format_bytes
from topomend.wire.document import MalformedObject
from topomend.wire.pod import read_pod

_SHOWN_KINDS = 3
"""How many kinds of typical pods are shown without ``-o wide``."""


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
    sources = [source for source in cluster.readable_states if source.resource != NODE_TOPOLOGIES]
    sources.append(Source(NODE_TOPOLOGIES, cluster.read_published))
    if not asked:
        sources.append(cluster.if_readable(Source(PODS, read_seen, fields="status.phase!=Running")))
    picture = next(cluster.pictures(sources))
    snapshot = cluster.snapshot_of(picture)
    check(nodes, snapshot.publications.keys() | snapshot.unreadable.keys())
    seen: Sequence[Seen] = [] if asked else picture[PODS]
    typical = of_file(asked) if asked else of_cluster(snapshot, seen)
    found = pools(snapshot, typical, nodes)
    if output in DOCUMENTS:
        echo_document({"pools": [record_of(pool) for pool in found]}, output)
    else:
        print_pools(found, wide=output == WIDE)
    for problem in [one.problem for one in seen if one.problem][:_SHOWN_KINDS]:
        echo(f"a pod is not counted: {problem}", err=True)
    if cluster.unread:
        echo(cluster.unread, err=True)


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
    left_out = pool.size - len(pool.nodes)
    count = f"{len(pool.nodes)} node{'' if len(pool.nodes) == 1 else 's'}"
    rest = f", {left_out} left out: not Ready, cordoned, or their state is unknown" if left_out else ""
    echo(f"pool {pool.name}   {count}{rest}")
    if not pool.resources:
        return
    rows = [row for resource in pool.resources for row in _rows(resource)]
    echo_table([("RESOURCE", "FREE", "UNUSABLE", "FRAGMENTED", "MOST ON", "FREED BY THE END OF ANY OF"), *rows])
    if not pool.typical:
        echo(
            "no pod holds, asks for or has asked for any of it here, so no share is known; "
            "name typical pods with -f FILE"
        )
        return
    shown = pool.typical if wide else pool.typical[:_SHOWN_KINDS]
    echo_table([("TYPICAL POD", "PODS", "ADMITTED ON"), *(_kind_row(pool, *each) for each in shown)])
    if more := len(pool.typical) - len(shown):
        echo(f"and {more} more kind{'' if more == 1 else 's'} of pods: -o wide shows {'it' if more == 1 else 'them'}")
    if uncovered := [each.name for each in pool.resources if each.fragmented and each.covered < 1]:
        least = min(each.covered for each in pool.resources if each.fragmented)
        echo(f"only the {MAX_KINDS} largest kinds count: of {', '.join(uncovered)} they ask for {least:.0%} at least")


def _rows(resource: PoolResource) -> Iterator[tuple[str, ...]]:
    """A line for the resource, and one for each further node."""
    name, fragmented = resource.name, resource.fragmented
    unusable = _amount(name, fragmented.unusable) if fragmented else "-"
    cells = name, _amount(name, resource.free), unusable, _share(fragmented.share if fragmented else None)
    first, *others = [_culprit(name, culprit) for culprit in resource.culprits] or [("-", "-")]
    yield (*cells, *first)
    yield from (("", "", "", "", *each) for each in others)


def _culprit(resource: str, culprit: Culprit) -> tuple[str, str]:
    pods = ", ".join(f"{pod.namespace}/{pod.name}" for pod in culprit.pods)
    return f"{culprit.node} ({_amount(resource, culprit.fragmented.unusable)})", pods or "-"


def _kind_row(pool: Pool, typical: TypicalPod, admitting: int) -> tuple[str, str, str]:
    asks = " ".join(f"{resource}={_amount(resource, amount)}" for resource, amount in _of_one(typical).items())
    return asks, str(typical.number), f"{admitting} of {len(pool.nodes)}"


def _of_one(typical: TypicalPod) -> Mapping[str, float]:
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
            {"number": typical.number, "asks": dict(_of_one(typical)), "admittedOn": admitting}
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
