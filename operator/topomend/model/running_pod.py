"""A pod that is bound to a node, with its controller and its running containers."""

from dataclasses import dataclass

from topomend.model.cluster import Owner
from topomend.model.pod import Pod


@dataclass(frozen=True)
class RunningPod:
    """A pod that is bound to ``node``. ``running`` are the names of its containers that run now.

    ``owner`` is the workload that the user wrote: the Deployment, where the controller is one of its ReplicaSets.
    """

    pod: Pod
    node: str
    running: frozenset[str]
    owner: Owner | None
