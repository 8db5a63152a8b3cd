"""A right that an administrator may take away by deleting its ClusterRoleBinding. What needs it rests meanwhile.

Owns the rest and what the log says of it, once. Leaves the work to its owner.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from topomend.kube.errors import Forbidden

OFF_SECONDS = 300.0
"""After how long to try again without the right."""


class OptionalRight:
    """``without`` says what is not done where it is missing. For one thread."""

    def __init__(self, log: logging.Logger, without: str, clock: Callable[[], float]) -> None:
        self._log, self._without, self._clock = log, without, clock
        self._off_until, self._has_warned = 0.0, False

    @property
    def is_missing(self) -> bool:
        """Whether the API server has refused it in the last OFF_SECONDS."""
        return self._clock() < self._off_until

    @contextmanager
    def used(self) -> Iterator[None]:
        """Ends the work in it where the API server refuses the right; other errors pass through."""
        try:
            yield
        except Forbidden as error:
            self._off_until = self._clock() + OFF_SECONDS
            if not self._has_warned:
                self._has_warned = True
                self._log.warning("%s: %s", self._without, error)
