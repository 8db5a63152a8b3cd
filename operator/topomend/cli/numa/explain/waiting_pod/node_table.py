"""What each node lacks for a pod that waits, as one table: the lack, the nearest amount, and whose end alone helps.

Owns rows and their order. Leaves what a node lacks to ``decide.near_miss``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topomend.cache.snapshot import Snapshot
from topomend.cli.output.table import kubectl_rows
from topomend.decide.diagnosis.feasibility import Diagnosis
from topomend.decide.diagnosis.near_miss import Lack, lack_of, remedy_at
from topomend.decide.diagnosis.totals import Requests
from topomend.explain.remedy import Remedy, amount_words
from topomend.model.pods.pod import Pod

HEADING = ("NODE", "LACKS", "FREE", "WOULD ADMIT", "OR ONCE THIS ENDS")

MOST_REMEDIES = 20
"""For how many nodes it is sought what they would admit, those that lack least first."""


_NONE = Remedy()


@dataclass(frozen=True)
class NodeRow:
    """A node that rejects the pod: what it lacks, and what would help there if that was sought."""

    lack: Lack
    remedy: Remedy = _NONE

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells under HEADING."""
        nearest = " or ".join(amount_words(amount) for amount in self.remedy.amounts)
        return self.lack.node, self.lack.words, self.lack.free or "-", nearest or "-", self.remedy.ends or "-"


def node_rows(
    snapshot: Snapshot, pod: Pod, diagnosis: Diagnosis, used: Mapping[str, Requests] | None
) -> tuple[NodeRow, ...]:
    """A row for each node that rejects the pod, those that lack least first. ``used`` is as in ``remedy_at``, by node;
    None where the user may not list the pods."""
    lacks = sorted(
        ((lack_of(snapshot, pod, status), status) for status in diagnosis.rejected),
        key=lambda each: (each[0].share, each[0].node),
    )
    return tuple(
        NodeRow(
            lack, remedy_at(snapshot, pod, status, _used_on(used, lack.node)) if position < MOST_REMEDIES else _NONE
        )
        for position, (lack, status) in enumerate(lacks)
    )


def _used_on(used: Mapping[str, Requests] | None, node: str) -> Requests | None:
    return None if used is None else used.get(node, {})


def table_lines(rows: Sequence[NodeRow], most: int | None) -> list[str]:
    """The table of at most so many nodes, all if None, with a line that says how many were left out."""
    shown = rows[:most]
    if not shown:
        return []
    lines = kubectl_rows([HEADING, *(row.cells for row in shown)])
    left = len(rows) - len(shown)
    return [*lines, *([f"and {left} more nodes, with -o wide"] if left else [])]
