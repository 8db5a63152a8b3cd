"""The workers: threads that reconcile pods in turn, and when a pod is tried again that failed or waits.

Owns the retries of whole reconciliations. What to do about a pod is left to ``reconcile``, delays to the queue.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from topomend.controller.pauses import TICK_SECONDS, pause_after
from topomend.kube.client import Client
from topomend.kube.errors import APIError, NotPermitted, ServerFailed, Unanswered
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.relaunch.driver import NoProgress
from topomend.replay.effort import TURN_SECONDS, Effort, TurnOver
from topomend.runtime.leader_election import RETRY_SECONDS
from topomend.runtime.queues.work_queue import WorkQueue
from topomend.wire.document import MalformedObject

MALFORMED_SECONDS = 60.0
"""After how long to look again at a pod that cannot be read, but is relaunched or gated by us."""

STOP_SECONDS = 5.0
"""For how long the end of a reconciliation is waited for."""

_log = logging.getLogger(__name__)


class Workers:
    """Reconcile the pods of ``queue``, those of ``waiting`` again when a change affects them, until it stops."""

    def __init__(  # noqa: PLR0913  the parts of the operator that they join
        self,
        client: Client,
        store: Store,
        queue: WorkQueue[PodID],
        waiting: UnschedulablePods,
        *,
        reconcile: Callable[[PodID, Effort], Result],
        leads: Callable[[], bool],
    ) -> None:
        self._client, self._store, self._queue, self._waiting = client, store, queue, waiting
        self._reconcile_pod, self._leads = reconcile, leads
        self._stopped = threading.Event()
        self._unanswered = threading.Event()
        self._workers: Sequence[threading.Thread] = ()

    def start(self, workers: int) -> None:
        """Start so many workers, and the threads that have pods tried again."""
        self._workers = [
            threading.Thread(target=self._work, name=f"worker-{number}", daemon=True) for number in range(workers)
        ]
        for worker in self._workers:
            worker.start()
        threading.Thread(target=self._wake_up, name="wake-up", daemon=True).start()
        threading.Thread(target=self._retry_after_outages, name="outages", daemon=True).start()

    def stop(self) -> None:
        """Stop the queue. Returns when no pod is reconciled any more, or after STOP_SECONDS for each worker."""
        self._stopped.set()
        self._queue.stop()
        for worker in self._workers:
            worker.join(STOP_SECONDS)

    def _work(self) -> None:
        while (pod := self._queue.get()) is not None:
            retry_after = self._reconcile(pod) if self._leads() else None
            self._queue.done(pod, failed=retry_after is not None, at_least=retry_after or 0.0)

    def _reconcile(self, pod: PodID) -> float | None:
        """Reconcile the pod. Returns None, or after a failure the seconds to wait at least before the next attempt.

        A failure with one pod does not stop the others.
        """
        since = self._waiting.remove(pod)
        try:
            result = within_shares(self._store, lambda shares: self._reconcile_pod(pod, shares), TURN_SECONDS)
        except TurnOver:
            self._queue.add(pod)
            return None
        except NotPermitted:
            return RETRY_SECONDS  # an operator that was paused leads again, often before it knows that it did not
        except (APIError, NoProgress) as error:
            _log.warning("%s/%s: %s; retried", pod.namespace, pod.name, error)
            if isinstance(error, Unanswered | ServerFailed):
                self._unanswered.set()
            return pause_after(error)
        except MalformedObject as error:
            _log.warning("%s/%s is left alone for a minute: %s", pod.namespace, pod.name, error)
            self._queue.add(pod, MALFORMED_SECONDS)  # a claimed pod may be deleted meanwhile
            return None
        except Exception as error:  # noqa: BLE001  a bug that one pod reveals must not stop the others
            _log.error("%s/%s: unexpected: %r; retried", pod.namespace, pod.name, error)
            _log.debug("where it happened", exc_info=True)
            return 0.0
        if result.on_change:
            self._waiting.add(pod, result, since)
        if result.after is not None:
            self._queue.add(pod, result.after)
        return None

    def _retry_after_outages(self) -> None:
        """Retry all at once when the API server answers again: by then their delays are as long as the outage was."""
        while not self._stopped.is_set():
            if self._unanswered.wait(TICK_SECONDS) and self._was_away():
                _log.info("the API server answers again: what failed meanwhile is retried")
                self._queue.retry_now()

    def _was_away(self) -> bool:
        """Wait until the API server answers. Returns whether it did not at first: else only one request failed."""
        was_away = False
        while not self._stopped.is_set():
            self._unanswered.clear()
            try:
                self._client.version()
            except (Unanswered, ServerFailed):
                was_away = True
                self._stopped.wait(TICK_SECONDS)
                continue
            except APIError as error:
                _log.debug("the API server answers: %s", error)
            break
        return was_away

    def _wake_up(self) -> None:
        """Enqueue the waiting pods that changes affect: that replays, so the thread that takes changes in does not."""
        while not self._stopped.is_set():
            if not self._waiting.wait_for_change(TICK_SECONDS):
                continue
            began = time.monotonic()
            try:
                self._waiting.requeue_affected()
            except Exception as error:  # noqa: BLE001  a bug that one pod reveals must not stop the others
                _log.error("waiting pods were not all asked about: unexpected: %r; they are retried by time", error)
                _log.debug("where it happened", exc_info=True)
            self._stopped.wait(time.monotonic() - began)  # the workers need the interpreter too
