"""How long replay may work on one node: what an agent publishes decides how long an admission takes.

Without a meter replay takes its time and is exact. The operator runs it with one: a node that takes too long costs the
pods of other nodes no more than its share. Owns the shares and the places where they are checked. Leaves to its caller
what becomes of a node that has overspent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

ADMISSION_SECONDS = 0.1
"""The share of one admission, for each container of the pod. On the largest machine with which a kubelet starts by
default, 8 NUMA nodes, a container takes some milliseconds."""

SURVEY_SECONDS = 0.5
"""The share of one node in all that is worked out for one pod, for each container: the diagnosis, other orders of
arrival, and the explanation, which tries many amounts in some milliseconds."""


TURN_SECONDS = 0.5
"""How long everything that is worked out for one pod may take at a time, where turns are kept: then others are next.
The first pod of a kind takes 0.3 s on 5,000 nodes. One of 200 containers would take a minute and more."""


class TurnOver(Exception):
    """What is worked out for one pod takes long, and others wait. What is known is remembered for its next turn."""


class Overspent(Exception):
    """Replay of ``node`` took longer than its share: there is no answer."""

    def __init__(self, node: str) -> None:
        super().__init__(f"replay of {node} takes too long")
        self.node = node


class _Meter:
    """The seconds that each node has taken, until when the present one may work, and until when all of it may."""

    def __init__(self, clock: Callable[[], float], turn_seconds: float) -> None:
        self.clock = clock
        self.turn_ends = clock() + turn_seconds
        self.spent: dict[str, float] = {}
        self.node = ""
        self.deadline = 0.0


_meter: ContextVar[_Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered(clock: Callable[[], float], turn_seconds: float = inf) -> Iterator[None]:
    """Have replay keep to its shares in this block, which works for one pod at a time, and the block to its turn.

    ``clock`` counts the seconds that this thread works: the time that it waits for others is no node's fault. Replay
    raises Overspent, and ``end_turn`` TurnOver.
    """
    before = _meter.set(_Meter(clock, turn_seconds))
    try:
        yield
    finally:
        _meter.reset(before)


def next_pod() -> None:
    """The block works for another pod from now on: each node has its whole share again."""
    meter = _meter.get()
    if meter is not None:
        meter.spent.clear()


@contextmanager
def working_on(node: str, containers: int, share: float = ADMISSION_SECONDS) -> Iterator[None]:
    """Have the block keep to ``share`` seconds for each container, which are spent on ``node``. Raises Overspent.

    A block within another keeps to the share of that one.
    """
    meter = _meter.get()
    if meter is None or meter.node:
        yield
        return
    began, count = meter.clock(), max(1, containers)
    left = SURVEY_SECONDS * count - meter.spent.get(node, 0.0)
    meter.node, meter.deadline = node, began + min(share * count, left)
    try:
        check()
        yield
    finally:
        meter.node = ""
        meter.spent[node] = meter.spent.get(node, 0.0) + meter.clock() - began


def check() -> None:
    """Raises Overspent where the present node's share is used up. Called wherever replay may take long."""
    meter = _meter.get()
    if meter is not None and meter.node and meter.clock() > meter.deadline:
        raise Overspent(meter.node)


def end_turn() -> None:
    """Raises TurnOver where the block's turn is over. Called between nodes, where the answers so far are remembered."""
    meter = _meter.get()
    if meter is not None and meter.clock() > meter.turn_ends:
        raise TurnOver
