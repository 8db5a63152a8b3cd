"""Of which objects a watch has brought something newer than a list contains.

A list is read beside the watches, and applied a moment later. An object that was deleted meanwhile is still in it, and
would be back until the next list: a pod that is gone would hold CPUs of its node. Owns what was seen last of each
object. Leaves the effect of a list to ``cache/changes``.
"""

import threading

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import PodKey, is_newer

MAX_OBJECTS = 10_000
"""Objects that are remembered, those of the latest events: a list waits for seconds at most."""


class NewestVersions:
    """The resourceVersion of the latest event about each object, its deletion included. For several threads."""

    def __init__(self) -> None:
        self._versions: BoundedDict[tuple[str, PodKey], str] = BoundedDict(MAX_OBJECTS)
        self._lock = threading.Lock()

    def note(self, plural: str, key: PodKey, version: str) -> None:
        """A watch has brought this version of the object ``key``, whose namespace may be empty."""
        with self._lock:
            self._versions.pop((plural, key), None)
            self._versions[plural, key] = version

    def newer_than(self, plural: str, version: str) -> frozenset[PodKey]:
        """The objects of which something newer came than a list of this version contains; the others are forgotten.

        Lists are asked about in the order in which they were read: a later one contains what was forgotten.
        """
        with self._lock:
            noted = [(key, seen) for (kind, key), seen in self._versions.items() if kind == plural]
            newer = frozenset(key for key, seen in noted if is_newer(seen, version))
            for key, _ in noted:
                if key not in newer:
                    del self._versions[plural, key]
            return newer
