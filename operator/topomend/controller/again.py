"""When a pod is to be looked at again."""

from dataclasses import dataclass

RETRY_SECONDS = 60.0
"""How long a pod that waits for a node, or for the API server's permission, goes without being looked at."""


@dataclass(frozen=True)
class Again:
    """After so many seconds (None is not at all), and by what changes.

    ``on_room`` is when a node changes that would take the pod then, ``on_machine_change`` when one changes in more than
    in what its pods hold, ``on_any_change`` when one changes at all, or another pod that waits goes.
    """

    after: float | None = None
    on_room: bool = False
    on_machine_change: bool = False
    on_any_change: bool = False

    @property
    def on_change(self) -> bool:
        """Whether it waits for more than time."""
        return self.on_room or self.on_machine_change or self.on_any_change


DONE = Again()


def sooner(left: Again, right: Again | None) -> Again:
    """As soon as either says."""
    if right is None:
        return left
    times = [each for each in (left.after, right.after) if each is not None]
    return Again(
        min(times, default=None),
        left.on_room or right.on_room,
        left.on_machine_change or right.on_machine_change,
        left.on_any_change or right.on_any_change,
    )
