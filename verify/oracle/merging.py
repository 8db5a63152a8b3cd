"""The two ways in which replay merges hints. Comparisons use that of wide machines on small ones too."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from topomend.replay.topology import merge


class Merging(Enum):
    """By a table of all masks, or by search as on machines with more than ``merge.TABLED_NODES`` NUMA nodes."""

    TABLED = "tabled"
    SEARCHED = "searched"

    @contextmanager
    def used(self) -> Iterator[None]:
        """Merge hints this way, on machines of any width up to ``merge.TABLED_NODES``."""
        before = merge.TABLED_NODES
        if self is Merging.SEARCHED:
            merge.TABLED_NODES = 0
        try:
            yield
        finally:
            merge.TABLED_NODES = before
