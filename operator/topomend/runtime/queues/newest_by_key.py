"""Objects of which only the newest of each key matters, handed out at most once in a while each.

Owns which object waits and until when. Leaves waiting to its user.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class NewestByKey(Generic[Key, Item]):
    """One waiting object for each key. ``put`` may be called by several threads, the rest by one.

    Times are in seconds of any one clock. The first object of a key is due at once, a later one ``seconds`` after the
    one before it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._items: dict[Key, Item] = {}
        self._ready: dict[Key, None] = {}
        self._quiet_until: OrderedDict[Key, float] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: Key, item: Item) -> bool:
        """Have ``item`` wait in the place of an older one of this key. Returns whether none has waited."""
        with self._lock:
            is_first = key not in self._items
            self._items[key] = item
            if key not in self._quiet_until:
                self._ready[key] = None
            return is_first

    def due(self, now: float) -> list[Item]:
        """The objects that are due, which no longer wait."""
        with self._lock:
            while self._quiet_until and next(iter(self._quiet_until.values())) <= now:
                key, _ = self._quiet_until.popitem(last=False)
                if key in self._items:
                    self._ready[key] = None
            keys = list(self._ready)
            self._ready.clear()
            self._quiet_until.update(dict.fromkeys(keys, now + self._seconds))
            return [self._items.pop(key) for key in keys]

    def wait(self, now: float) -> float | None:
        """Seconds after which to look again for objects that are due; None while none waits."""
        with self._lock:
            if not self._items:
                return None
            return 0.0 if self._ready else max(0.0, next(iter(self._quiet_until.values())) - now)
