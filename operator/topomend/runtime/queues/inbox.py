"""The inbox of one thread: groups take turns, and what concerns all of them comes after what was there before it.

However much one group puts in, an item of another waits for few of them. Items of one group stay in their order. Owns
the order and how much may wait. Leaves what an item is to its user.
"""

import threading
from collections import Counter, deque
from typing import Generic, TypeVar

from topomend.runtime.queues.fair_queue import RoundRobin

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Items by group. Any thread may put items in, one takes them out.

    Items with a size, in bytes, have room for ``most`` bytes together, and those of one group for half of that.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: RoundRobin[tuple[str, Item, int, int]] = RoundRobin()
        self._sizes: Counter[str] = Counter()
        self._size = 0
        self._behind: deque[Item] = deque()
        self._first, self._waiting = 0, deque([0])
        self._changed = threading.Condition()
        self._stopped = False

    def put(self, group: str, item: Item, size: int = 0) -> bool:
        """Add ``item`` behind the others of its group, or return False where there is no room for it. Never waits."""
        with self._changed:
            if size and not self._has_room(group, size):
                return False
            self._size += size
            if size:
                self._sizes[group] += size
            self._items.push(group, (group, item, size, self._first + len(self._behind)))
            self._waiting[-1] += 1
            self._changed.notify()
            return True

    def put_behind_all(self, item: Item) -> None:
        """Add ``item`` behind all that wait now, of every group. Those that come later may come before it."""
        with self._changed:
            self._behind.append(item)
            self._waiting.append(0)
            self._changed.notify()

    def take(self, most: int, seconds: float | None = None) -> list[Item] | None:
        """Wait for items, at most so many ``seconds``, and take at ``most`` so many; None once stopped and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self), seconds)
            if self._stopped and not len(self):
                return None
            return [self._pop() for _ in range(min(most, len(self)))]

    def stop(self) -> None:
        """Have ``take`` return None once the inbox is empty."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._items) + len(self._behind)

    def _has_room(self, group: str, size: int) -> bool:
        return self._size + size <= self._most and self._sizes[group] + size <= self._most // 2

    def _pop(self) -> Item:
        """The next item. The first that waits behind others comes as soon as none of those is left."""
        if self._behind and not self._waiting[0]:
            self._waiting.popleft()
            self._first += 1
            return self._behind.popleft()
        popped = self._items.pop()
        assert popped is not None  # noqa: S101  the caller has counted
        group, item, size, number = popped
        self._waiting[number - self._first] -= 1
        self._size -= size
        self._sizes[group] -= size
        if not self._sizes[group]:
            del self._sizes[group]
        return item
