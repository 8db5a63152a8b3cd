"""Virtual time: events, each at its moment, of which the first is next."""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random

Event = Callable[[], None]


class Timeline:
    """Events to come; ``now`` is the moment of the last one, in seconds. Those of one moment keep their order."""

    def __init__(self, chance: Random) -> None:
        self.now, self._chance = 0.0, chance
        self._events: list[tuple[float, int, Event]] = []
        self._count = count()

    def at(self, time: float, event: Event) -> None:
        """Have the event happen then."""
        heapq.heappush(self._events, (time, next(self._count), event))

    def after(self, delay: tuple[float, float], event: Event) -> None:
        """Have the event happen after a random delay between two numbers of seconds."""
        self.at(self.now + self._chance.uniform(*delay), event)

    def next(self) -> Event | None:
        """The next event, whose moment is now; None where none is left."""
        if not self._events:
            return None
        self.now, _, event = heapq.heappop(self._events)
        return event
