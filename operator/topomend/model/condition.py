"""What an object says about itself: conditions as Kubernetes' API conventions define them, and a node's columns."""

from typing import NamedTuple

WOULD_NOT_START_AGAIN = "WouldNotStartAgain"
"""The reason of a True condition whose message names a file with which the node's kubelet would not start again. What
the kubelet that runs has allocated is known nevertheless: it read that file before."""


class Condition(NamedTuple):
    """One standard condition: ``status`` is True, False or Unknown, ``reason`` CamelCase.

    ``last_transition_time`` is RFC 3339, empty where publishing has still to add it.
    """

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""


class Summary(NamedTuple):
    """The columns of ``kubectl get ntopo``, as text but for the number of devices; ``discover`` computes them."""

    cpus_free: str = ""
    memory_free: str = ""
    devices: int = 0
    status: str = ""
