"""When a pod is to be looked at again."""

from dataclasses import dataclass

RETRY_SECONDS = 60.0
"""How long a pod that waits for a node, or for the API server's permission, goes without being looked at."""


@dataclass(frozen=True)
class Again:
    """After so many seconds (None is not at all), when a node changes, and when one changes in more than in what its
    pods hold."""

    after: float | None = None
    on_node_change: bool = False
    on_machine_change: bool = False


DONE = Again()


def sooner(left: Again, right: Again | None) -> Again:
    """As soon as either says."""
    if right is None:
        return left
    times = [each for each in (left.after, right.after) if each is not None]
    return Again(
        min(times, default=None),
        left.on_node_change or right.on_node_change,
        left.on_machine_change or right.on_machine_change,
    )
