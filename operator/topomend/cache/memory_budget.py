"""A budget of memory for the large parts of the snapshot, wherever they are kept.

Strangers decide how large a part is and how many there are. Owns the count of what exists. Leaves the size of a part,
and what becomes of one for which there is no room, to its reader.
"""

import weakref
from itertools import count


class MemoryBudget:
    """The bytes of all parts that exist and are not ordinary.

    A part of at most ``ordinary`` bytes has room always. All others take at most ``most`` together, and those of one
    group at most ``most_of_group``; by default one group may take all. Several threads may use it: two that ask at the
    same time may exceed it by what one of them takes.
    """

    def __init__(self, most: int, ordinary: int, most_of_group: int | None = None) -> None:
        self._most, self._ordinary = most, ordinary
        self._most_of_group = most if most_of_group is None else most_of_group
        self._taken: dict[int, tuple[str, int]] = {}
        self._numbers = count()

    def has_room(self, size: int, group: str = "", *, freed: int = 0) -> bool:
        """Whether there is room for a part of this size now, which takes the place of one of ``freed`` bytes."""
        if size <= self._ordinary or size <= freed:
            return True
        size -= freed if freed > self._ordinary else 0
        taken = list(self._taken.values())
        of_group = sum(part_size for owner, part_size in taken if owner == group)
        return sum(part_size for _, part_size in taken) + size <= self._most and of_group + size <= self._most_of_group

    def take(self, part: object, size: int, group: str = "", *, freed: int = 0) -> bool:
        """Count ``part`` as long as it exists. Returns False, and does not count it, where there is no room for it."""
        if not self.has_room(size, group, freed=freed):
            return False
        if size > self._ordinary:
            number = next(self._numbers)
            self._taken[number] = group, size
            weakref.finalize(part, self._taken.pop, number, None).atexit = False
        return True
