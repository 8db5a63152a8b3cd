"""The ways in which replay merges hints. Wide machines need two that tests put small ones through as well."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from topomend.replay.topology import fittest, merge, wide


class Merging(Enum):
    """By a table of all masks; by search, the closest by how it is spread over twins; by searching masks alone."""

    TABLED = "tabled"
    SPREAD = "spread"
    SEARCHED = "searched"

    @contextmanager
    def used(self) -> Iterator[None]:
        """While this lasts, hints are merged this way on machines of any width up to ``merge.TABLED_NODES``."""
        before = merge.TABLED_NODES, fittest.MOST_SPREADS, wide.MOST_CHOICES
        if self is not Merging.TABLED:
            merge.TABLED_NODES = 0
        if self is Merging.SEARCHED:
            fittest.MOST_SPREADS = wide.MOST_CHOICES = 0
        try:
            yield
        finally:
            merge.TABLED_NODES, fittest.MOST_SPREADS, wide.MOST_CHOICES = before
