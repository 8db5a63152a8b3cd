"""The result of reconciling a pod: when to reconcile it again (controller-runtime: reconcile.Result)."""

from dataclasses import dataclass

RETRY_SECONDS = 60.0
"""The delay before a pod is reconciled again that waits for a node or for the API server's permission."""


@dataclass(frozen=True)
class Result:
    """Requeue after ``after`` seconds (None: not by time), or on a change of the cluster, whichever is first.

    ``on_capacity``: when a node that changed would admit the pod. ``on_topology_change``: when a node changes in more
    than in what its pods hold. ``on_any_change``: when any node changes, or another pod stops waiting.
    """

    after: float | None = None
    on_capacity: bool = False
    on_topology_change: bool = False
    on_any_change: bool = False

    @property
    def on_change(self) -> bool:
        """Whether a change of the cluster requeues the pod."""
        return self.on_capacity or self.on_topology_change or self.on_any_change


DONE = Result()


def earliest(left: Result, right: Result | None) -> Result:
    """Requeue as soon as either result says."""
    if right is None:
        return left
    delays = [result.after for result in (left, right) if result.after is not None]
    return Result(
        min(delays, default=None),
        left.on_capacity or right.on_capacity,
        left.on_topology_change or right.on_topology_change,
        left.on_any_change or right.on_any_change,
    )
