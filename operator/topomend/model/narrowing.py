"""To which nodes a pod is narrowed when it is ungated. Leaves writing that into a pod to ``relaunch/manifest``."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Nodes by their hostname labels: the pod goes to ``hosts`` only, or to any but ``excluded``.

    ``hosts`` are best first, and the best are preferred. With ``excluded`` the pod may go to nodes that are in neither,
    such as new ones. Without any the pod is not narrowed. ``preferred`` is how many of the first ``hosts`` are better
    than all others in what the scheduler does not know, and so preferred; 0 where none is.
    """

    hosts: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    preferred: int = 0

    def __bool__(self) -> bool:
        """Whether the pod is narrowed at all."""
        return bool(self.hosts or self.excluded)

    def allows(self, host: str) -> bool:
        """Whether the pod may go to the node of this hostname."""
        return host not in self.excluded if self.excluded else not self.hosts or host in self.hosts


ANYWHERE = Narrowing()
"""The pod keeps its own node affinity."""


def shortest(hosts: Sequence[str], others: Sequence[str]) -> Narrowing:
    """A pod that may go to all of ``hosts``, best first, and to none of ``others``: whichever list is shorter."""
    if others and len(others) < len(hosts):
        return Narrowing(tuple(hosts), tuple(others))
    return Narrowing(tuple(hosts))


def anywhere_but(hosts: Sequence[str], others: Sequence[str]) -> Narrowing:
    """A pod that may go to any node but ``others``, and best to ``hosts``, best first."""
    return Narrowing(tuple(hosts), tuple(others)) if others else ANYWHERE
