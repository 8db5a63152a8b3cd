"""``kubectl numa defragment``: which few pods to move so that typical pods can use what is free. It moves nobody."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.input.duration import read_duration
from topomend.cli.numa.cluster.arguments.pod_argument import pods_of_file
from topomend.cli.numa.cluster.cluster import NOTHING_PUBLISHED, Cluster, cluster_options
from topomend.cli.numa.cluster.completion import complete_pools
from topomend.cli.numa.cluster.pods.movable_pods import read_movable
from topomend.cli.numa.summary import asks_text, of_one, read_typical
from topomend.cli.output.console import echo
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput, CannotAsk
from topomend.cli.output.formats import WIDE, Printer, Row, output_option
from topomend.cli.output.table import echo_table
from topomend.decide.defragment.movable import WORDS
from topomend.decide.defragment.moves import Defragmented, DefragmentedPool, Limits, Move, Place
from topomend.decide.defragment.search import defragment
from topomend.explain.trace_text import numa_text
from topomend.kube.resources import BUDGETS
from topomend.model.bitmask import members
from topomend.model.nodes.node_pool import pools_of

_EXAMPLES = """\b
Examples:
  kubectl numa defragment                      # which pods, and what it would bring
  kubectl numa defragment --pool gpu --moves 3
  kubectl numa defragment -f pods.yaml         # for pods like these
  kubectl numa defragment -o json | jq '.moves[].pod'
"""

_MOVES, _THRESHOLD = 5, 10.0
_SHOWN_KINDS = 3
"""How many kinds of typical pods are shown without ``-o wide`` beside those for which the moves make a difference."""


@dataclass(frozen=True)
class Answer:
    """The moves, and how many pods are not moved, by reason."""

    found: Defragmented
    left_out: Mapping[str, int]

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        found = self.found
        return {
            "moves": [_record(move) for move in found.moves],
            "pools": [_pool_record(pool) for pool in found.pools],
            "leftOut": [{"reason": reason, "pods": pods} for reason, pods in self.left_out.items()],
            "movable": found.movable,
            "lookedAt": found.asked,
            "unproven": found.unproven,
        }


@click.command(epilog=_EXAMPLES)
@click.option("--dry-run", is_flag=True, help="Move nobody: as without it, for this verb advises alone.")
@click.option(
    "--pool",
    metavar="POOL",
    default="",
    shell_complete=complete_pools,
    help="The pool, as show --summary names it. Default: every pool.",
)
@click.option(
    "--moves",
    metavar="NUMBER",
    type=click.IntRange(1, 100),
    default=_MOVES,
    show_default=True,
    help="At most so many pods are moved.",
)
@click.option(
    "--threshold",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=_THRESHOLD,
    show_default=True,
    help="By so much of one node each move has the fragmentation of its pool fall, at least.",
)
@click.option(
    "--older-than",
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="Only pods that were created so long ago; so none is moved again within that time.",
)
@click.option(
    "-f",
    "--filename",
    metavar="FILE",
    default="",
    type=click.Path(),
    help="The typical pods, Pods and workloads; - is stdin. Default: those of the cluster.",
)
@output_option()
@cluster_options
@click.pass_context
def defragment_(  # noqa: PLR0913  one for each flag
    context: click.Context,
    /,
    *,
    cluster: Cluster,
    dry_run: bool,  # noqa: ARG001  it has no other mode
    pool: str,
    moves: int,
    threshold: float,
    older_than: str,
    filename: str,
    output: str,
) -> None:
    """Name the few pods whose move leaves less unusable of what is free in a pool. It moves nobody itself.

    The fragmentation of a pool is the mean of what show --summary says of its resources. The move that has it fall most
    comes first; it is carried out in a simulation, by totals and by replay, with topomend's own choice of nodes, and
    pods that wait take the room. Then the next one is looked for. Only pods of ReplicaSets and StatefulSets in steered
    namespaces are moved that lose nothing by it and that no PodDisruptionBudget keeps.

    To carry a move out, cordon the nodes that it names, lest the pod come back, evict the pod, and uncordon them once
    its next one runs. If that is not where it was told, ask again.

    Exits with 0 if there are moves, with 1 if none helps, and with 3 if that is not known.
    """
    least_age = read_duration("--older-than", older_than)
    asked = pods_of_file(filename, cluster) if filename else ()
    typical = read_typical(cluster, asked)
    snapshot = cluster.with_claims(typical.snapshot)
    if cluster.is_partial:
        raise CannotAsk(cluster.unread)
    if not snapshot.publications:
        raise CannotAsk(NOTHING_PUBLISHED)
    names = set(pools_of(snapshot.nodes.values()).values())
    if pool and pool not in names:
        near = did_you_mean(pool, names) or f"; there are: {', '.join(sorted(names))}"
        raise BadInput(f"no pool is called {pool}{near}")
    pods = read_movable(cluster, snapshot, least_age, datetime.now(UTC))
    limits = Limits(moves, threshold / 100)
    wanted = (pool,) if pool else ()
    found = defragment(pods.counted(snapshot), typical.kinds_of, pods.pods, limits, names=wanted)
    _echo(Answer(found, dict(pods.left_out.most_common())), output)
    typical.echo_problems()
    if cluster.unread:
        echo(cluster.unread, err=True)
    code = NOT_KNOWN if BUDGETS.plural in cluster.not_read else YES if found.moves else NO
    if code:
        context.exit(code)


# Printed


def _echo(answer: Answer, output: str) -> None:
    moves = answer.found.moves
    printer = Printer(
        output, ("MOVE", "POD", "OWNER", "FROM", "TO", "CORDON", "FRAGMENTED", "THEN"), ("OR-TO", "THEN-RUNS")
    )
    if moves or not printer.for_people:
        printer.first([_row(number, move) for number, move in enumerate(moves, 1)], answer.record())
    if not printer.for_people:
        return
    for line in _lines(answer.found):
        echo(line)
    for pool in answer.found.pools:
        filled = any(move.then for move in moves)
        _echo_kinds(pool, wide=output == WIDE, filled=filled)
    if answer.left_out:
        echo_table([("NOT MOVED", "PODS"), *((WORDS[reason], str(pods)) for reason, pods in answer.left_out.items())])


def _row(number: int, move: Move) -> Row:
    pod = move.pod.pod
    places = _place(move.origin), _place(move.target)
    shown = f"{pod.namespace}/{pod.name}"
    cells = str(number), shown, move.pod.owner, *places, ",".join(move.cordoned), *_percents(move)
    runs = ", ".join(f"{each.pod.namespace}/{each.pod.name}" for each in move.then)
    return Row((pod.uid,), cells, _record(move), f"pod/{pod.name}", (",".join(move.others) or "-", runs or "-"))


def _place(place: Place) -> str:
    return f"{place.node} {numa_text(place.numa_nodes)}" if place.numa_nodes else place.node


def _percents(move: Move) -> tuple[str, str]:
    return _percent(move.before), _percent(move.after)


def _percent(number: float | None) -> str:
    return "-" if number is None else f"{number:.1%}"


def _lines(found: Defragmented) -> Iterator[str]:
    for number, move in enumerate(found.moves, 1):
        for then in move.then:
            yield f"after move {number} {then.pod.namespace}/{then.pod.name}, which waits, runs on {_place(then.place)}"
    if found.moves:
        yield "one by one: kubectl cordon the nodes named, evict the pod, wait until its next one runs, uncordon them"
    else:
        yield _none_text(found)
    if found.asked < found.movable:
        yield f"looked at {found.asked} of {found.movable} pods, those of the most fragmented nodes"


def _none_text(found: Defragmented) -> str:
    if not found.movable:
        return "no pod can be moved"
    unproven = f"; {found.unproven} might, by the node that the scheduler chooses" if found.unproven else ""
    return f"no move of one of {found.movable} pods brings enough for sure{unproven}"


def _echo_kinds(pool: DefragmentedPool, *, wide: bool, filled: bool) -> None:
    """Print a pool; ``filled``: pods that waited have taken of the room, so that less is left for others."""
    nodes = f"{len(pool.nodes)} node{'' if len(pool.nodes) == 1 else 's'}"
    rest = ", with those that wait and then run" if filled else ""
    echo(f"pool {pool.name}   {nodes}   fragmented {_percent(pool.before)}, then {_percent(pool.after)}{rest}")
    shown = [each for number, each in enumerate(pool.typical) if wide or number < _SHOWN_KINDS or each[1] != each[2]]
    if shown:
        echo_table([("TYPICAL POD", "ADMITTED ON", "THEN ON"), *_kind_rows(shown)])


def _kind_rows(typical: Iterable[tuple[Any, int, int]]) -> Iterator[tuple[str, ...]]:
    return ((asks_text(kind), str(now), str(then)) for kind, now, then in typical)


# For programs


def _record(move: Move) -> dict[str, Any]:
    pod = move.pod.pod
    return {
        "pod": {"namespace": pod.namespace, "name": pod.name},
        "owner": move.pod.owner,
        "pool": move.pool,
        "from": _place_record(move.origin),
        "to": _place_record(move.target),
        "cordon": list(move.cordoned),
        "orTo": list(move.others),
        "before": move.before,
        "after": move.after,
        "thenRun": [
            {"namespace": each.pod.namespace, "name": each.pod.name, **_place_record(each.place)} for each in move.then
        ],
    }


def _place_record(place: Place) -> dict[str, Any]:
    return {"node": place.node, "numaNodes": list(members(place.numa_nodes))}


def _pool_record(pool: DefragmentedPool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "nodes": len(pool.nodes),
        "leftOut": pool.size - len(pool.nodes),
        "before": pool.before,
        "after": pool.after,
        "typicalPods": [
            {"number": kind.number, "asks": dict(of_one(kind)), "admittedOn": now, "thenOn": then}
            for kind, now, then in pool.typical
        ],
    }
