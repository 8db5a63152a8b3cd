"""The operator as a whole: its parts put together, started, kept going and stopped."""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from topomend.controller.announcer import Announcer
from topomend.controller.health import Health
from topomend.controller.metrics import Metrics
from topomend.controller.observer import Observer, PodID
from topomend.controller.reconciler import Reconciler
from topomend.controller.settings import Settings
from topomend.controller.store import Store
from topomend.controller.sweeper import Sweeper
from topomend.controller.work_queue import WorkQueue
from topomend.kube.client import Client
from topomend.kube.errors import APIError, NotFound, NotPermitted
from topomend.kube.events import Recorder
from topomend.kube.lease import Election
from topomend.relaunch.driver import NoProgress
from topomend.watch.events import TimePassed
from topomend.wire.document import MalformedObject

TICK_SECONDS = 0.5
SWEEP_RETRY_SECONDS = 2.0
STUCK_SECONDS = 120.0
"""A key that waited this long for a worker means that the workers hang."""

if TYPE_CHECKING:
    from topomend.controller.streams import Streams

_log = logging.getLogger(__name__)


class Operator:
    """Runs until it is stopped."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._stopped = threading.Event()
        self._sweep_now = threading.Event()
        self._queue: WorkQueue[PodID] = WorkQueue()
        self._store = Store()
        self._leads = threading.Event()
        self._election: Election | None = None
        if settings.leader_elect:
            self._election = Election(client, settings.namespace, _identity(), self._lead)
            client = client.writing_while(self._election.leads)
        self._observer = Observer(self._store, self._look_at, time.monotonic)
        self._recorder = Recorder(client)
        self._metrics = Metrics(lambda: self._store.view, self._observer.waiting, self._leads.is_set)
        self._reconciler = Reconciler(
            client, self._store, Announcer(self._recorder), settings, self._observer.put, metrics=self._metrics
        )
        self._sweeper = Sweeper(client, self._observer, settings.record_seconds)
        self._listed = threading.Event()
        self._swept = time.monotonic()

    def stop(self) -> None:
        """Have ``run`` return. May be called from a signal handler."""
        self._stopped.set()

    def run(self) -> None:
        """Watch, sweep and reconcile until stopped."""
        from topomend.controller.streams import Streams  # noqa: PLC0415  kopf takes long to import: sweep meanwhile

        self._observer.start()
        workers = self._start_workers()
        sweeper = threading.Thread(target=self._sweep_on, name="sweeper", daemon=True)
        sweeper.start()
        streams = Streams(self._observer.put, self._sweep_now.set)
        threading.Thread(target=self._watch_once_listed, args=(streams,), name="streams-start", daemon=True).start()
        health = Health(self._settings.health_address, self._problem) if self._settings.health_address else None
        if health:
            health.start()
        stop_metrics = self._metrics.serve(self._settings.metrics_address) if self._settings.metrics_address else None
        _log.info("the operator runs with %d workers", self._settings.workers)
        threading.Thread(target=self._free_places, name="places", daemon=True).start()
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
        if health:
            health.stop()
        if stop_metrics:
            stop_metrics()
        streams.stop()
        self._observer.stop()

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
        self._observer.tell_all()

    def _look_at(self, pod: PodID, after: float) -> None:
        if self._leads.is_set():
            self._queue.add(pod, after)

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
            self._queue.done(pod, failed=self._leads.is_set() and not self._reconcile(pod))

    def _reconcile(self, pod: PodID) -> bool:
        """Whether the pod was dealt with; whatever goes wrong with one pod, the others go on."""
        self._observer.stop_waiting(pod)
        try:
            again = self._reconciler.reconcile(pod)
        except NotPermitted:
            return True  # whoever leads now looks at everything there is to do
        except (APIError, NoProgress) as error:
            _log.warning("%s/%s: %s; tried again", pod.namespace, pod.name, error)
            return False
        except MalformedObject as error:
            _log.warning("%s/%s is left aside: %s", pod.namespace, pod.name, error)
            return True
        except Exception as error:  # noqa: BLE001  a fault of ours with one pod must not take the others along
            _log.error("%s/%s: unexpected: %r; tried again", pod.namespace, pod.name, error)
            _log.debug("where it happened", exc_info=True)
            return False
        if again.on_node_change:
            self._observer.wait_for_nodes(pod)
        if again.on_machine_change:
            self._observer.wait_for_machines(pod)
        if again.after is not None:
            self._queue.add(pod, again.after)
        return True

    def _watch_once_listed(self, streams: "Streams") -> None:
        """Start the streams once every kind could be listed: kopf watches only those that are there at its start."""
        while not self._stopped.is_set():
            if self._listed.wait(TICK_SECONDS):
                streams.start()
                return

    def _free_places(self) -> None:
        """Free the places of pods that will not come, or that ended before their node was published with them."""
        while not self._stopped.wait(TICK_SECONDS):
            try:
                if self._leads.is_set():
                    self._reconciler.look_for_departed()
                    self._reconciler.ease_brake()
            except APIError as error:
                _log.debug("pods on their way could not be looked for, or the brake not eased: %s", error)
            self._observer.put(TimePassed(time.monotonic()))

    def _sweep_on(self) -> None:
        while not self._stopped.is_set():
            self._sweep_now.clear()
            wait = self._settings.sweep_seconds if self._sweep() else SWEEP_RETRY_SECONDS
            self._sweep_now.wait(wait)

    def _sweep(self) -> bool:
        try:
            self._sweeper.sweep(time.monotonic(), tidy=self._leads.is_set())
        except NotFound as error:
            _log.error("%s; install the kinds: kubectl apply --server-side -f crds/", error)
            return False
        except APIError as error:
            _log.warning("the cluster could not be listed: %s; tried again", error)
            return False
        if not self._listed.is_set():
            _log.info("the cluster is listed")
            self._listed.set()
        self._swept = time.monotonic()
        return True

    def _problem(self) -> str:
        late = time.monotonic() - self._swept
        if late > 2 * self._settings.sweep_seconds + STUCK_SECONDS:
            return f"nothing could be listed for {late:.0f} s"
        overdue = self._queue.overdue()
        return f"a pod has waited {overdue:.0f} s for a worker" if overdue > STUCK_SECONDS else ""


def _identity() -> str:
    """A name that no other candidate has, another life of this one on the same host included."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
