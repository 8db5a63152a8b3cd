"""All that is told of a pod that waits for a node besides the nodes' answers: why, what each node lacks, who has to go.

Owns putting it together. Leaves why topomend gates it to ``gated``, and the table to ``node_table``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.explain.waiting_pod.gated import Gated, gated, is_gated
from topomend.cli.numa.explain.waiting_pod.node_table import NodeRow, node_rows, table_lines
from topomend.cli.numa.explain.waiting_pod.surroundings import Surroundings
from topomend.cli.numa.make_room import Advice, advice_for
from topomend.decide.diagnosis.feasibility import Diagnosis
from topomend.decide.diagnosis.infeasible import why_infeasible
from topomend.decide.diagnosis.node_status import INSUFFICIENT, NOT_ALIGNED, NodeStatus
from topomend.explain.trace_text import numa_text
from topomend.model.pods.scheduling import WatchedPod
from topomend.wire.document import MalformedObject
from topomend.wire.pods.scheduling import read_watched_pod

MOST_ROWS = 10
"""Nodes in the table, unless in ``wide``."""

MOST_TOLD = 3
"""Nodes of which a sentence tells as well, unless in ``wide``, which has all."""


@dataclass(frozen=True)
class Wait:
    """``gate`` is why topomend keeps the pod gated, None if it does not; ``rows`` are the nodes that reject the pod.

    ``infeasible`` is why no node can ever admit it; ``advice`` who has to go for it, None where that was not asked.
    """

    gate: Gated | None = None
    rows: tuple[NodeRow, ...] = ()
    infeasible: str = ""
    advice: Advice | None = None

    @property
    def why(self) -> list[str]:
        """Since when and why the pod is gated; empty if it is not."""
        return [self.gate.first, *(f"  {line}" for line in self.gate.why)] if self.gate else []

    @property
    def room(self) -> list[str]:
        """Who has to go for it, or that nobody's end helps."""
        if self.infeasible:
            return [self.infeasible]
        return [*_room_lines(self.advice)] if self.advice else []

    @property
    def next(self) -> tuple[str, ...]:
        """What happens next."""
        return self.gate.next if self.gate else ()

    def table(self, *, is_wide: bool) -> list[str]:
        """What each node lacks."""
        return table_lines(self.rows, None if is_wide else MOST_ROWS)

    def told_of(self, rejected: Sequence[NodeStatus]) -> Iterator[NodeStatus]:
        """The nodes of which a sentence tells more than the table: the closest one, and a few of those that would not
        align the pod or are full."""
        first = self.rows[0].lack
        others = [status.node for status in rejected if status.reason in (NOT_ALIGNED, INSUFFICIENT)][:MOST_TOLD]
        for status in rejected:
            if status.node in others or (status.node == first.node and isfinite(first.share)):
                yield status

    def record(self) -> dict[str, Any]:
        """What programs read; docs/reference.md lists the fields."""
        return {
            "gated": self.gate.record() if self.gate else None,
            "nodes": [_row_record(row) for row in self.rows],
            "infeasible": self.infeasible,
            "room": self.advice.record() if self.advice else None,
        }


NO_WAIT = Wait()


def wait_of(
    cluster: Cluster, snapshot: Snapshot, asked: RequestedPod, diagnosis: Diagnosis, around: Surroundings
) -> Wait:
    """What is known of a pod that waits for a node. Raises APIError."""
    pod = _watched(asked)
    infeasible = why_infeasible(snapshot, asked.pod, asked.placement)
    gate = gated(pod, diagnosis, around, infeasible, snapshot.nodes.values()) if pod and is_gated(pod) else None
    rows = node_rows(snapshot, asked.pod, diagnosis, around.requests_on(snapshot.nodes))
    advice = None
    if not diagnosis.candidates and not infeasible and around.bound_pods and around.may_ask_for_room():
        nodes = list(snapshot.nodes)
        advice = advice_for(cluster, snapshot, asked, nodes, around.bound_pods)
    return Wait(gate, rows, infeasible, advice)


def _watched(asked: RequestedPod) -> WatchedPod | None:
    try:
        return read_watched_pod(asked.content)
    except MalformedObject:
        return None


def _room_lines(advice: Advice) -> Iterator[str]:
    room = advice.room
    if room is None:
        yield "no node would admit it, whoever ended"
        return
    place = f"{room.node}{f' ({numa_text(room.numa_nodes)})' if room.numa_nodes else ''}"
    if room.leaving:
        yield f"being deleted on {room.node}: {', '.join(pod.shown for pod in room.leaving)}"
    if room.pods:
        fewest = "the fewest whose end makes room" if room.is_fewest else "their end makes room"
        evicted = "" if advice.may_be_evicted else "; they may end, but not be evicted for it"
        yield f"{fewest}, on {place}: {', '.join(pod.shown for pod in room.pods)}{evicted}"


def _row_record(row: NodeRow) -> dict[str, Any]:
    node, lacks, free, admits, ends = row.cells
    dash = {"-": ""}
    return {
        "node": node,
        "lacks": lacks,
        "free": dash.get(free, free),
        "wouldAdmit": dash.get(admits, admits),
        "onceEnds": dash.get(ends, ends),
    }
