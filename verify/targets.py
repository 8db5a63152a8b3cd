"""Compares what a program measured with its targets, in one table for all programs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from topomend.cli.output.table import echo_table


@dataclass(frozen=True)
class Target:
    """A figure and the most that it may be, both in ``unit``."""

    name: str
    measured: float
    limit: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the figure is within its limit."""
        return self.measured <= self.limit

    def row(self) -> tuple[str, ...]:
        """The target's cells: name, figure, limit, figure as a part of the limit, and the verdict."""
        share = f"{self.measured / self.limit:.0%}" if self.limit else "-"
        return (self.name, self._text(self.measured), self._text(self.limit), share, "met" if self.is_met else "MISSED")

    def _text(self, figure: float) -> str:
        return f"{figure:.4g} {self.unit}".rstrip()


def judge(targets: Sequence[Target]) -> int:
    """Print the targets and return a program's exit code: 1 if one is missed."""
    sys.stdout.flush()
    echo_table([("TARGET", "MEASURED", "LIMIT", "OF-LIMIT", "RESULT"), *(target.row() for target in targets)])
    return 0 if all(target.is_met for target in targets) else 1
