"""How long replay may work on one node: what an agent publishes decides how long an admission takes.

Whoever asks replay hands it an ``Effort``. ``UNLIMITED`` takes its time and is exact. The operator hands over
``Shares``, one for each pod that it works on: a node that takes too long costs the pods of other nodes no more than its
share. Owns the shares. Leaves to the caller what becomes of a node that has overspent.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


class Effort:
    """As much as it takes. It has no state: all threads may share it."""

    __slots__ = ()

    def working_on(self, node: str, containers: int, share: float = ADMISSION_SECONDS) -> AbstractContextManager[None]:
        """Have the block keep to ``share`` seconds for each container, which are spent on ``node``. Raises Overspent.

        A block within another keeps to the share of that one.
        """
        del node, containers, share
        return nullcontext()

    def check(self) -> None:
        """Raises Overspent where the present node's share is used up. Called wherever replay may take long."""

    def next_pod(self) -> None:
        """The work is for another pod from now on: each node has its whole share again."""

    def end_turn(self) -> None:
        """Raises TurnOver where the turn is over. Called between nodes, where the answers so far are remembered."""


UNLIMITED = Effort()


class Shares(Effort):
    """The seconds that each node has taken of its share, and until when all of the work may go on. For one thread.

    ``clock`` counts the seconds that this thread works: the time that it waits for others is no node's fault.
    """

    __slots__ = ("_clock", "_deadline", "_node", "_spent", "_turn_ends")

    def __init__(self, clock: Callable[[], float], turn_seconds: float = inf) -> None:
        self._clock = clock
        self._turn_ends = clock() + turn_seconds
        self._spent: dict[str, float] = {}
        self._node = ""
        self._deadline = 0.0

    @contextmanager
    def working_on(self, node: str, containers: int, share: float = ADMISSION_SECONDS) -> Iterator[None]:
        """As of any effort."""
        if self._node:
            yield
            return
        began, count = self._clock(), max(1, containers)
        left = SURVEY_SECONDS * count - self._spent.get(node, 0.0)
        self._node, self._deadline = node, began + min(share * count, left)
        try:
            self.check()
            yield
        finally:
            self._node = ""
            self._spent[node] = self._spent.get(node, 0.0) + self._clock() - began

    def check(self) -> None:
        """As of any effort."""
        if self._node and self._clock() > self._deadline:
            raise Overspent(self._node)

    def next_pod(self) -> None:
        """As of any effort."""
        self._spent.clear()

    def end_turn(self) -> None:
        """As of any effort."""
        if self._clock() > self._turn_ends:
            raise TurnOver
