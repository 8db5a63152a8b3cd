"""Explains a pod that runs unaligned although its creator asks for alignment: nobody steered it, or its node changed.

A pod is looked at from its binding until its node publishes its allocation, or should have. Owns when that is. Leaves
the judgement to ``alignment.requested``. A pod that was bound before the operator came is explained by
``kubectl numa explain``.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from topomend.alignment.requested import is_aligned, why_not_aligned
from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import Publication
from topomend.kube.client import Client
from topomend.kube.errors import Refused
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests

UNPUBLISHED_SECONDS = 30.0
"""After how long a pod that its node does not publish has nothing to publish: no manager pins anything of it."""

MAX_BOUND = 1_000
MAX_READ = 10
"""How many pods without an allocation are read from the API server at a time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A pod that asks for alignment, and when it was seen bound, in seconds."""

    pod: WatchedPod
    since: float


class UnalignedPods:
    """The pods. ``bound`` may be called by any thread, ``check`` by one."""

    def __init__(
        self, client: Client, store: Store, announcer: Announcer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._store, self._announcer, self._clock = client, store, announcer, clock
        self._bound: BoundedDict[str, _Bound] = BoundedDict(MAX_BOUND)
        self._lock = threading.Lock()
        self._faults = ObjectFaults(_log, "its alignment is not told", clock)

    def bound(self, pod: WatchedPod) -> None:
        """A pod was seen. It is looked at later if a scheduler has bound it and it asks for alignment."""
        if not pod.pod.single_numa_node or not pod.node or pod.phase != "Pending":
            return
        with self._lock:
            if pod.uid not in self._bound:
                self._bound[pod.uid] = _Bound(pod, self._clock())

    def check(self) -> None:
        """Explain those of which it is known now that they run unaligned. Raises APIError.

        A pod that the API server refuses to show is asked for again later.
        """
        with self._lock:
            waiting = list(self._bound.items())
        read = 0
        for uid, bound in waiting:
            publication = self._store.snapshot.publications.get(bound.pod.node)
            is_shown = publication is not None and _shows(publication, bound.pod)
            if not is_shown and (self._clock() < bound.since + UNPUBLISHED_SECONDS or read == MAX_READ):
                continue
            read += not is_shown
            again = None
            with self._faults.of(bound.pod.namespace, bound.pod.name):
                try:
                    self._explain(publication, bound.pod, is_shown=is_shown)
                except Refused:
                    again = _Bound(bound.pod, self._clock())
                    raise
            with self._lock:
                self._bound.pop(uid, None)
                if again:  # behind the others
                    self._bound[uid] = again

    def _explain(self, publication: Publication | None, pod: WatchedPod, *, is_shown: bool) -> None:
        if publication is not None and is_shown:
            self._judge(publication, pod)
        else:
            self._judge_unpublished(publication, pod)

    def _judge_unpublished(self, publication: Publication | None, pod: WatchedPod) -> None:
        """Explain a pod that runs and of which its node pins nothing."""
        current = pod_requests.read(self._client, pod.namespace, pod.name)
        if current is None or current.uid != pod.uid or current.phase != "Running":
            return
        if publication is not None and not publication.problem:
            self._judge(publication, pod)

    def _judge(self, publication: Publication, pod: WatchedPod) -> None:
        if not is_aligned(publication.state, pod.pod):
            self._announcer.not_aligned(pod, why_not_aligned(publication.state, pod.pod))


def _shows(publication: Publication, pod: WatchedPod) -> bool:
    """Whether the node publishes this pod, and not another of its name."""
    return any(
        (allocation.namespace, allocation.name) == (pod.namespace, pod.name) and allocation.uid in ("", pod.uid)
        for allocation in publication.state.pods
    )
