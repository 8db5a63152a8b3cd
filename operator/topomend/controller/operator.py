"""The operator as a whole: its parts put together, started, kept going and stopped."""

import logging
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from topomend.cache.changes import TimePassed
from topomend.controller.ingest import Ingest
from topomend.controller.relist import Relister
from topomend.kube.client import Client
from topomend.kube.errors import APIError, Forbidden, Invalid, MethodNotAllowed, NotFound, NotPermitted
from topomend.model.cluster import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.parameters import ENSURE_SECONDS, Parameters
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.reconciler import Reconciler
from topomend.reconcile.settings import Settings
from topomend.reconcile.staleness import Staleness
from topomend.reconcile.store import Store
from topomend.reconcile.unschedulable_pods import UnschedulablePods
from topomend.relaunch.driver import NoProgress
from topomend.runtime.endpoints import HEALTH, METRICS, READINESS, Endpoints, Page, check_page, metrics_page
from topomend.runtime.event_recorder import EventRecorder
from topomend.runtime.leader_election import LeaderElection
from topomend.runtime.work_queue import WorkQueue
from topomend.wire.document import MalformedObject

TICK_SECONDS = 0.5
SWEEP_RETRY_SECONDS = 2.0
LONGEST_PATIENCE_SECONDS = 60.0
"""However long the API server asks to be left alone, and however often something of ours fails, this is waited."""

REFUSED_SECONDS = 1.0
"""What the API server refused is not asked again at once: rights and policies do not change within milliseconds."""

GATHER_SECONDS = 0.5
"""The streams list their kinds one after another: one sweep is enough for all that do within this."""

BURST_SECONDS = 0.02
"""Nodes change in bursts: who waits for one is looked at once for all that come within this."""

STUCK_SECONDS = 120.0
"""A key that waited this long for a worker means that the workers hang."""

if TYPE_CHECKING:
    from topomend.controller.watch_streams import WatchStreams

_log = logging.getLogger(__name__)


class Operator:
    """Runs until it is stopped."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._stopped = threading.Event()
        self._sweep_now = threading.Event()
        self._queue: WorkQueue[PodID] = WorkQueue()
        self._to_brake: queue.SimpleQueue[WatchedPod] = queue.SimpleQueue()
        self._store = Store()
        self._leads = threading.Event()
        self._election: LeaderElection | None = None
        self._parameters = Parameters(client, settings.namespace, settings.pod_name, settings.pod_uid)
        if settings.leader_elect:
            self._election = LeaderElection(
                client, settings.namespace, settings.identity or _new_identity(), self._lead
            )
            client = client.writing_while(self._election.leads)
        self._waiting = UnschedulablePods(self._store, lambda pod: self._enqueue(pod, BURST_SECONDS))
        self._ingest = Ingest(self._store, self._waiting, self._enqueue, self._brake_for, time.monotonic)
        self._recorder = EventRecorder(client)
        self._metrics = Metrics(lambda: self._store.snapshot, lambda: len(self._waiting), self._leads.is_set)
        announcer = Announcer(self._recorder)
        self._reconciler = Reconciler(client, self._store, announcer, settings, self._ingest.put, metrics=self._metrics)
        self._staleness = Staleness(client, self._store, announcer)
        self._relister = Relister(client, self._ingest, settings.record_seconds)
        self._listed = threading.Event()
        self._swept = time.monotonic()
        self._streams: WatchStreams | None = None

    def stop(self) -> None:
        """Have ``run`` return. Not for signal handlers: one would wait for the thread that it interrupts."""
        self._stopped.set()

    def run(self) -> None:
        """Watch, sweep and reconcile until stopped."""
        self._ingest.start()
        workers = self._start_workers()
        relister = threading.Thread(target=self._sweep_on, name="sweeper", daemon=True)
        relister.start()
        threading.Thread(target=self._watch_once_listed, name="streams-start", daemon=True).start()
        endpoints = self._serve()
        _log.info("the operator runs with %d workers", self._settings.workers)
        threading.Thread(target=self._brake_all, name="brake", daemon=True).start()
        threading.Thread(target=self._look_after, name="places", daemon=True).start()
        threading.Thread(target=self._keep_parameters, name="parameters", daemon=True).start()
        if self._election:
            self._election.start()
        else:
            self._take_over()
        self._stopped.wait()
        _log.info("the operator stops")
        self._queue.stop()
        for worker in workers:
            worker.join(5.0)
        self._recorder.stop()
        if self._election:
            self._election.stop()
        for served in endpoints:
            served.close()
        if self._streams:
            self._streams.stop()
        self._ingest.stop()

    def _serve(self) -> Sequence[Endpoints]:
        pages: dict[str, dict[str, Callable[[], Page]]] = {}
        for address, path, page in (
            (self._settings.health_address, HEALTH, check_page(self._problem)),
            (self._settings.health_address, READINESS, check_page(self._unready)),
            (self._settings.metrics_address, METRICS, metrics_page(self._metrics.registry)),
        ):
            if address:
                pages.setdefault(address, {})[path] = page
        return [Endpoints(address, served) for address, served in pages.items()]

    def _lead(self, leads: bool) -> None:
        """Act from now on, or only watch."""
        if leads:
            _log.info("this operator leads")
            self._take_over()
            self._sweep_now.set()
        else:
            self._leads.clear()
            self._queue.clear()
            _log.warning("this operator no longer leads: it watches and writes nothing")

    def _take_over(self) -> None:
        """Begin with all that there is to do by the view."""
        self._reconciler.take_over()
        self._leads.set()
        self._ingest.enqueue_all()

    def _enqueue(self, pod: PodID, after: float) -> None:
        if self._leads.is_set():
            self._queue.add(pod, after)

    def _brake_for(self, pod: WatchedPod) -> None:
        if self._leads.is_set():
            self._to_brake.put(pod)

    def _brake_all(self) -> None:
        """A storm is stopped before anything else is done: the workers may be busy, and the refused pod soon gone."""
        while True:
            pod = self._to_brake.get()
            try:
                self._reconciler.brake(pod)
            except APIError as error:
                _log.warning("%s/%s: its controller is not held yet: %s", pod.namespace, pod.name, error)
            except Exception as error:  # noqa: BLE001  the next refused pod is another occasion
                _log.error("%s/%s: its controller is not held: unexpected: %r", pod.namespace, pod.name, error)

    def _start_workers(self) -> Sequence[threading.Thread]:
        workers = [
            threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            for number in range(self._settings.workers)
        ]
        for worker in workers:
            worker.start()
        return workers

    def _work(self) -> None:
        while (pod := self._queue.get()) is not None:
            patience = self._reconcile(pod) if self._leads.is_set() else None
            self._queue.done(pod, failed=patience is not None, at_least=patience or 0.0)

    def _reconcile(self, pod: PodID) -> float | None:
        """None where the pod was dealt with, else for how many seconds at least it is to be left alone.

        Whatever goes wrong with one pod, the others go on.
        """
        since = self._waiting.stop(pod)
        try:
            result = self._reconciler.reconcile(pod)
        except NotPermitted:
            return None  # whoever leads now looks at everything there is to do
        except (APIError, NoProgress) as error:
            _log.warning("%s/%s: %s; tried again", pod.namespace, pod.name, error)
            return _patience(error)
        except MalformedObject as error:
            _log.warning("%s/%s is left aside: %s", pod.namespace, pod.name, error)
            return None
        except Exception as error:  # noqa: BLE001  a fault of ours with one pod must not take the others along
            _log.error("%s/%s: unexpected: %r; tried again", pod.namespace, pod.name, error)
            _log.debug("where it happened", exc_info=True)
            return 0.0
        if result.on_change:
            self._waiting.begin(pod, result, since)
        if result.after is not None:
            self._queue.add(pod, result.after)
        return None

    def _watch_once_listed(self) -> None:
        """Start the streams once every kind could be listed: kopf watches only those that are there at its start."""
        from topomend.controller.watch_streams import WatchStreams  # noqa: PLC0415  kopf takes long to import: sweep meanwhile

        while not self._stopped.is_set():
            if self._listed.wait(TICK_SECONDS):
                self._streams = WatchStreams(self._ingest.put, self._sweep_now.set)
                self._streams.start()
                return

    def _look_after(self) -> None:
        """Free the places of pods that will not come, or that ended before their node was published with them; ease
        the brake; tell of silent agents."""
        wait = TICK_SECONDS
        while not self._stopped.wait(wait):
            wait = TICK_SECONDS
            try:
                if self._leads.is_set():
                    self._reconciler.expire_assumed()
                    self._reconciler.ease_brake()
                    self._staleness.tell()
            except APIError as error:
                _log.debug("not all could be looked after that time changes: %s", error)
                wait = max(TICK_SECONDS, _patience(error))
            except Exception as error:  # noqa: BLE001  it is looked after again, and the places are freed by time
                _log.error("not all could be looked after that time changes: unexpected: %r; tried again", error)
            self._ingest.put(TimePassed(time.monotonic()))

    def _keep_parameters(self) -> None:
        """Have the policies gate pods as long as this process runs in its pod, whether it leads or not."""
        wait = 0.0
        while not self._stopped.wait(wait):
            wait = ENSURE_SECONDS
            try:
                self._parameters.ensure()
            except APIError as error:
                _log.debug("the policies' parameters are looked at again: %s", error)
                wait = max(TICK_SECONDS, _patience(error))
            except Exception as error:  # noqa: BLE001  without this thread no pod would be gated one day
                _log.error("the policies' parameters are looked at again: unexpected: %r", error)

    def _sweep_on(self) -> None:
        while not self._stopped.is_set():
            self._sweep_now.clear()
            if self._sweep_now.wait(self._relist()):
                self._stopped.wait(GATHER_SECONDS)

    def _relist(self) -> float:
        """Relist, and say after how many seconds to sweep again."""
        try:
            self._relister.relist(time.monotonic(), tidy=self._leads.is_set())
        except NotFound as error:
            _log.error("%s; install the kinds: kubectl apply --server-side -f crds/", error)
            return SWEEP_RETRY_SECONDS
        except APIError as error:
            _log.warning("the cluster could not be listed: %s; tried again", error)
            return max(SWEEP_RETRY_SECONDS, _patience(error))
        except Exception as error:  # noqa: BLE001  without the sweep, what the streams miss is lost
            _log.error("the cluster could not be listed: unexpected: %r; tried again", error)
            _log.debug("where it happened", exc_info=True)
            return LONGEST_PATIENCE_SECONDS
        if not self._listed.is_set():
            _log.info("the cluster is listed")
            self._listed.set()
        self._swept = time.monotonic()
        return self._settings.sweep_seconds

    def _unready(self) -> str:
        return "" if self._parameters.asked else "the policies' parameters do not name this pod as an owner yet"

    def _problem(self) -> str:
        late = time.monotonic() - self._swept
        if late > 2 * self._settings.sweep_seconds + STUCK_SECONDS:
            return f"nothing could be listed for {late:.0f} s"
        overdue = self._queue.overdue()
        if overdue > STUCK_SECONDS:
            return f"a pod has waited {overdue:.0f} s for a worker"
        return self._unwatched()

    def _unwatched(self) -> str:
        """Which kind is not watched although it could be: while the API server is away, this process is not at fault.

        A list that was answered since tells the two apart.
        """
        for plural, due in self._streams.overdue() if self._streams else ():
            if self._swept > due:
                return f"{plural} can be listed but are not watched"
            self._sweep_now.set()
        return ""


def _patience(error: Exception) -> float:
    """For how many seconds the API server is to be left alone, as it asks or as its answer says, within bounds."""
    if isinstance(error, Forbidden | Invalid | MethodNotAllowed):
        return REFUSED_SECONDS
    asked = error.retry_after if isinstance(error, APIError) and error.retry_after else 0.0
    return min(asked, LONGEST_PATIENCE_SECONDS)


def _new_identity() -> str:
    """A name that no other candidate has, another life of this one on the same host included."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
