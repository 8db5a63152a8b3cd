"""When a pod is to be looked at again."""

from dataclasses import dataclass

RETRY_SECONDS = 60.0
"""How long a pod that waits for a node, or for the API server's permission, goes without being looked at."""


@dataclass(frozen=True)
class Result:
    """After so many seconds (None is not at all), and by what changes.

    ``on_capacity`` is when a node changes that would take the pod then, ``on_topology_change`` when one changes in more
    than in what its pods hold, ``on_any_change`` when one changes at all, or another pod that waits goes.
    """

    after: float | None = None
    on_capacity: bool = False
    on_topology_change: bool = False
    on_any_change: bool = False

    @property
    def on_change(self) -> bool:
        """Whether it waits for more than time."""
        return self.on_capacity or self.on_topology_change or self.on_any_change


DONE = Result()


def earliest(left: Result, right: Result | None) -> Result:
    """As soon as either says."""
    if right is None:
        return left
    times = [each for each in (left.after, right.after) if each is not None]
    return Result(
        min(times, default=None),
        left.on_capacity or right.on_capacity,
        left.on_topology_change or right.on_topology_change,
        left.on_any_change or right.on_any_change,
    )
