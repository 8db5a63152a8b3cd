"""Whether a kubelet has started a moment ago, so that its list of pods may still lack some.

The kubelet opens its pod-resources socket before its managers have read their state: cmd/kubelet/app/server.go's
startKubelet runs both at once, and the managers start once the runtime is up (pkg/kubelet/kubelet.go:updateRuntimeUp).
Its pods come after that (kubelet.go:syncLoop waits for runtimeErrors): those of files at once, those of the API server
together as soon as they could be listed (config/apiserver.go:NewSourceApiserver), and each is listed from the moment
that it is added (kubelet.go:HandlePodAdditions). Nothing on the node says when that is over. But once one pod of the
API server is listed, the others follow in the same breath.

Only a start that was seen counts: to a reader that has just begun every socket is an old one. That is true of an agent
in a pod, which such a kubelet has started itself.
"""

import time
from collections.abc import Callable, Collection

from topomend.discover.pod_names import PodName

SECONDS = 30.0
"""How long a kubelet counts as starting at most: it cannot reach the API server, or nothing it had is left."""

SETTLED_SECONDS = 2.0
"""How long the list must have stayed the same. Adding a pod that runs takes the kubelet a few milliseconds."""

Mark = tuple[int, int, int]


class KubeletStart:
    """The latest start of one kubelet, recognized by the mark of its socket (``kubelet_config.mark_of``)."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._socket: Mark | None = None
        self._until = 0.0
        self._listed: tuple[Collection[PodName], float] | None = None

    def saw(self, socket: Mark) -> None:
        """The kubelet's socket is this one now; all zeros if it is not there."""
        if socket == self._socket:
            return
        is_new = self._socket is not None and any(socket)
        self._socket, self._listed = socket, None
        self._until = self._monotonic() + SECONDS if is_new else 0.0

    def is_recent(self) -> bool:
        """Whether the kubelet was seen to start, and may still lack what it will tell."""
        return self._monotonic() < self._until

    def end(self) -> None:
        """The kubelet tells all that it will."""
        self._until = 0.0

    def has_settled(self, listed: Collection[PodName], node_name: str) -> bool:
        """Whether the kubelet has heard of its pods from the API server, and gone through all of them."""
        now = self._monotonic()
        if self._listed is None or self._listed[0] != listed:
            self._listed = (listed, now)
        if all(_may_be_static(name, node_name) for _, name in listed):
            return False
        return now - self._listed[1] >= SETTLED_SECONDS


def _may_be_static(pod: str, node_name: str) -> bool:
    """Whether the kubelet may have the pod from a file (pkg/kubelet/config/common.go:generatePodName)."""
    return pod.endswith(f"-{node_name.lower()}")
