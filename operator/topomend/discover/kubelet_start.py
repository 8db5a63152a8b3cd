"""Whether a kubelet has started a moment ago, so that its list of pods may still lack some.

The kubelet opens its pod-resources socket before its managers have read their state (cmd/kubelet/app/server.go:
startKubelet runs both at once; they start once the runtime is up, pkg/kubelet/kubelet.go:updateRuntimeUp), and before
its sources of pods have told it of any. Until all have, its managers purge nothing
(cpumanager/cpu_manager.go:removeStaleState).
"""

import time
from collections.abc import Callable

SECONDS = 30.0
"""How long a kubelet counts as starting at most: a pod that it does not list may also have ended while it was down."""

Mark = tuple[int, int, int]


class KubeletStart:
    """The latest start of one kubelet, recognized by the mark of its socket (``kubelet_config.mark_of``)."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._socket: Mark | None = None
        self._until = 0.0

    def is_recent(self, socket: Mark) -> bool:
        """Whether the kubelet that made this socket may lack pods. A socket is as old as its time of modification."""
        now = self._monotonic()
        if socket != self._socket:
            age = time.time() - socket[1] / 1e9
            self._socket, self._until = socket, now + SECONDS - max(0.0, age)
        return now < self._until

    def is_at_its_begin(self, socket: Mark) -> None:
        """Count from now: the managers of the kubelet that made this socket have not started."""
        self._socket, self._until = socket, self._monotonic() + SECONDS

    def is_over(self) -> None:
        """The kubelet lists all its pods."""
        self._until = 0.0
