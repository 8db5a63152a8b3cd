"""Queues that groups take turns in: however much one group adds, another waits for one item of each group at most.

Round robin, as in the API server's fair queuing (k8s.io/apiserver pkg/util/flowcontrol/fairqueuing), with items that
all count the same. The operator's groups are namespaces: a tenant fills its own, and no other's.
"""

import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class RoundRobin(Generic[Item]):
    """Items by group, first in, first out; the groups take turns. For one thread."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, deque[Item]] = OrderedDict()
        self._length = 0

    def push(self, group: str, item: Item) -> None:
        """Add ``item`` behind the others of its group."""
        self._groups.setdefault(group, deque()).append(item)
        self._length += 1

    def pop(self) -> Item | None:
        """The first item of the group whose turn it is; None if there is none. An empty group is forgotten."""
        if not self._groups:
            return None
        group, items = next(iter(self._groups.items()))
        item = items.popleft()
        self._length -= 1
        if items:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        return item

    def clear(self) -> None:
        """Remove all items."""
        self._groups.clear()
        self._length = 0

    def length(self, group: str) -> int:
        """The number of the group's items."""
        return len(self._groups.get(group, ()))

    def __len__(self) -> int:
        return self._length


class FairQueue(Generic[Item]):
    """A queue between threads, of at most ``longest`` items, of which a group has at most ``longest_of_group``."""

    def __init__(self, longest: int, longest_of_group: int) -> None:
        self._longest, self._longest_of_group = longest, longest_of_group
        self._items: RoundRobin[Item] = RoundRobin()
        self._changed = threading.Condition()
        self._stopped = False

    def put(self, group: str, item: Item) -> bool:
        """Add ``item``, or return False where there is no room for it. Never waits."""
        with self._changed:
            has_room = len(self._items) < self._longest and self._items.length(group) < self._longest_of_group
            if has_room and not self._stopped:
                self._items.push(group, item)
                self._changed.notify()
            return has_room and not self._stopped

    def get(self) -> Item | None:
        """Wait for the next item; None once the queue is stopped and empty."""
        with self._changed:
            while not self._items and not self._stopped:
                self._changed.wait()
            return self._items.pop()

    def stop(self) -> None:
        """Accept no more items; those in the queue are still given out."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
