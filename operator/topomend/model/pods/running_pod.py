"""A pod that is bound to a node, with its controller and its running containers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Owner


@dataclass(frozen=True)
class RunningPod:
    """A pod that is bound to ``node``. ``running`` are the names of its containers that run now.

    ``owner`` is the workload that the user wrote: the Deployment, where the controller is one of its ReplicaSets.
    ``claims`` are the ResourceClaims of each container that has some: the name, and one request or empty for all.
    """

    pod: Pod
    node: str
    running: frozenset[str]
    owner: Owner | None
    claims: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
