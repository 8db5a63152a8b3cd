"""The operator as a whole: composes its parts, runs their threads, and stops them.

Owns leading, the lists, the gating of new pods, and the health check. Leaves pods and their retries to ``workers``.
"""

import logging
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from topomend.cache.changes import TimePassed
from topomend.controller.ingest import Ingest
from topomend.controller.kueue_check import KueueCheck
from topomend.controller.pauses import FORBIDDEN_SECONDS, TICK_SECONDS, pause_after
from topomend.controller.relist import Relister
from topomend.controller.watch_streams import WatchStreams
from topomend.controller.workers import Workers
from topomend.gating.definitions import Installation
from topomend.gating.installer import Installer
from topomend.gating.known_parameters import WATCHED, KnownParameters
from topomend.gating.parameters import ENSURE_SECONDS, Parameters
from topomend.kube.client import Client
from topomend.kube.errors import (
    APIError,
    NotFound,
)
from topomend.kube.resources import EVENTS
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.described_owners import DescribedOwners
from topomend.reconcile.gated.unschedulable_pods import UnschedulablePods
from topomend.reconcile.kueue.queued import Queued
from topomend.reconcile.metrics.pods import Metrics
from topomend.reconcile.nodes.staleness import Staleness
from topomend.reconcile.observe.hand_back import HandBack
from topomend.reconcile.observe.observer import Observer
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.reconciler import Reconciler
from topomend.reconcile.settings import OBSERVE, Settings
from topomend.reconcile.store import Store
from topomend.runtime.duties import Duties, Duty
from topomend.runtime.event_recorder import EventRecorder
from topomend.runtime.http.endpoints import HEALTH, METRICS, READINESS, Endpoints, check_page
from topomend.runtime.http.process_metrics import metrics_page
from topomend.runtime.http.server import Page
from topomend.runtime.leader_election import LeaderElection
from topomend.runtime.queues.fair_queue import FairQueue
from topomend.runtime.queues.work_queue import WorkQueue
from topomend.runtime.threads import ThreadDied, watched

KUEUE_SECONDS = 0.2
"""How often it is looked whether Kueue asks something, or something fits that did not."""

RELIST_RETRY_SECONDS = 2.0
UNEXPECTED_SECONDS = 60.0
"""Before everything is listed again after an unexpected error."""

STARTING_SECONDS = 10.0
"""For how long after its first answer an API server may still answer wrongly: it forbids what it has not read yet."""

GATHER_SECONDS = 0.5
"""What cuts one stream often cuts all: one relist serves all that miss events within this time."""

BURST_SECONDS = 0.02
"""Nodes change in bursts: a pod that waits is reconciled once for all changes within this time."""

SWITCH_SECONDS = 0.0005
"""After how long a thread that computes lets others go on. By default that is 5 ms, and a thread that reads events or
answers the API server waits several times: beside one busy thread, 99 % of the webhook's answers took 29 ms at most by
default, 18 ms so, and 4 ms beside none."""

STUCK_SECONDS = 120.0
"""Keys that wait while no worker finishes any for this long mean that the workers hang.

How long a key waits says nothing: with thousands of them it is a round of all."""

MAX_TO_BRAKE = 1_000
"""Refused pods whose controllers are to be braked, of which a tenth may be of one namespace."""

if TYPE_CHECKING:
    from topomend.controller.own_objects import OwnObjects

_log = logging.getLogger(__name__)


class Operator:
    """One operator process. Runs until it is stopped."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._observes, writing = settings.mode == OBSERVE, client
        if self._observes:
            client = client.creating_alone(EVENTS)  # nothing but the hand-back can write anything else
        self._client, self._settings = client, settings
        self._stopped, self._dead_thread = threading.Event(), ""
        self._relist_now = threading.Event()
        self._queue: WorkQueue[PodID] = WorkQueue(group_of=lambda pod: pod.namespace)
        self._to_brake: FairQueue[WatchedPod] = FairQueue(MAX_TO_BRAKE, MAX_TO_BRAKE // 10)
        self._store = Store()
        self._leads = threading.Event()
        self._election: LeaderElection | None = None
        self._gating_due = threading.Event()
        self._own_objects: OwnObjects | None = None
        self._known = KnownParameters(first_listed=self._gating_due.set)
        self._parameters = Parameters(
            client, settings.namespace, settings.pod_name, settings.pod_uid, found=self._known.found
        )
        installation = Installation(settings.namespace, settings.service_account, settings.gating_service)
        self._metrics = Metrics(lambda: self._store.snapshot, lambda: len(self._waiting), self._leads.is_set)
        self._gating = Installer(
            client,
            installation,
            settings.webhook_address,
            settings.webhook_url,
            self._leads.is_set,
            parameters=self._known,
            watch=self._watch_own_objects,
            took=self._metrics.answered_in,
        )
        if settings.leader_elect and not self._observes:
            self._election = LeaderElection(client, settings.namespace, _identity(settings), self._lead)
            client = client.writing_while(self._election.leads)
        self._waiting = UnschedulablePods(self._store, lambda pod: self._enqueue(pod, BURST_SECONDS))
        self._ingest = Ingest(
            self._store,
            self._waiting,
            self._enqueue,
            self._brake_for,
            bound=self._see_bound,
            dropped=self._missed,
            clock=time.monotonic,
        )
        # Every operator observes, and they post each Event once together.
        self._recorder = EventRecorder(client, once=self._observes, described=DescribedOwners(client))
        announcer = Announcer(self._recorder)
        self._hand_back = self._new_hand_back(writing, installation, announcer) if self._observes else None
        self._reconciler = self._new_reconciler(client, announcer)
        self._workers = Workers(
            self._client,
            self._store,
            self._queue,
            self._waiting,
            reconcile=self._reconciler.reconcile,
            leads=self._leads.is_set,
        )
        agents = Duty("agents", Staleness(client, self._store, announcer).report, TICK_SECONDS)
        self._listed = threading.Event()
        self._kueue = self._new_kueue_check(client) if settings.kueue else None
        kueue = [Duty("kueue", self._kueue.check, KUEUE_SECONDS)] if self._kueue else []
        self._duties = Duties(
            (*self._reconciler.duties(self._waiting.requeue_blocked), agents, *kueue),
            stopped=self._stopped,
            are_due=self._leads.is_set,
            pause_after=pause_after,
            succeeded=self._metrics.duty_done,
        )
        self._metrics.duties_begin(self._duties.names)
        self._metrics.show_while_leading(self._metrics.certificate_expiry, lambda: self._gating.certificate_expiry)
        self._relister = Relister(client, self._ingest, settings.record_seconds)
        self._relisted = self._tried_to_list = time.monotonic()
        self._streams = WatchStreams(client, self._ingest.put, self._missed)

    def _new_reconciler(self, client: Client, announcer: Announcer) -> Reconciler | Observer:
        """What is done about pods."""
        parts = (client, self._store, announcer, self._settings, self._ingest.put)
        if self._observes:
            return Observer(*parts, metrics=self._metrics)
        return Reconciler(
            *parts,
            metrics=self._metrics,
            why_not_gating=self._gating.why_not_gating,
            newest_pod=lambda: self._ingest.newest_pod,
        )

    def _new_kueue_check(self, client: Client) -> KueueCheck | None:
        """What answers Kueue's admission checks; an operator that observes has nothing to answer with."""
        if isinstance(self._reconciler, Observer):
            return None
        queued = Queued(client)
        return KueueCheck(client, queued, self._reconciler.numa_fit(queued), self._listed.is_set)

    def _new_hand_back(self, writing: Client, installation: Installation, announcer: Announcer) -> HandBack:
        """What ends the work of operators of mode relaunch. Its client may write."""
        settings = self._settings
        election = LeaderElection(writing, settings.namespace, _identity(settings), lambda _: None)
        return HandBack(
            writing, self._store, announcer, installation, election=election if settings.leader_elect else None
        )

    def stop(self) -> None:
        """Make ``run`` return. Not for signal handlers, which would wait for the thread that they interrupt."""
        self._stopped.set()

    def run(self) -> None:
        """Watch, relist and reconcile until stopped. Raises ThreadDied if a thread ended by itself."""
        with watched(self._end_with):
            self._run()
        if self._dead_thread:
            raise ThreadDied(self._dead_thread)

    def _end_with(self, dead_thread: str) -> None:
        """Stop because a thread has died: nothing but a new process does its work again."""
        _log.critical("%s; the operator ends", dead_thread)
        self._dead_thread = self._dead_thread or dead_thread
        self.stop()

    def _run(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._ingest.start()
        self._workers.start(self._settings.workers)
        relister = threading.Thread(target=self._relist_loop, name="relist", daemon=True)
        relister.start()
        endpoints = self._serve()
        _log.info("the operator runs with %d workers", self._settings.workers)
        threading.Thread(target=self._brake_all, name="brake", daemon=True).start()
        threading.Thread(target=self._keep_time, name="time", daemon=True).start()
        self._duties.start()
        threading.Thread(target=self._keep_gating, name="gating", daemon=True).start()
        if self._election:
            self._election.start()
        else:
            self._take_over()
        self._stopped.wait()
        _log.info("the operator stops")
        self._to_brake.stop()
        self._workers.stop()
        self._recorder.stop()
        if self._election:
            self._election.stop()
        self._gating.close()
        if self._hand_back:
            self._hand_back.close()
        for served in endpoints:
            served.close()
        if self._own_objects:
            self._own_objects.stop()
        self._streams.stop()
        if self._kueue:
            self._kueue.stop()
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
        """Start or cease to write."""
        if leads:
            _log.info("this operator leads")
            self._take_over()
            self._relist_now.set()
        else:
            self._leads.clear()
            self._queue.clear()
            _log.warning("this operator no longer leads; it watches and writes nothing")

    def _take_over(self) -> None:
        """Enqueue all that the snapshot shows."""
        self._reconciler.take_over()
        if self._kueue:
            self._kueue.take_over()
        self._leads.set()
        self._ingest.enqueue_all()

    def _enqueue(self, pod: PodID, after: float) -> None:
        if self._leads.is_set():
            self._queue.add(pod, after)

    def _missed(self) -> None:
        """Events may have been missed: list everything, and count on from no sum of before."""
        self._ingest.missed()
        self._relist_now.set()

    def _brake_for(self, pod: WatchedPod) -> None:
        if self._leads.is_set():
            self._to_brake.put(pod.namespace, pod)  # without room, a worker brakes it when it reconciles the pod

    def _see_bound(self, pod: WatchedPod) -> None:
        self._reconciler.bound(pod)
        if self._leads.is_set() and pod.phase == "Pending":
            self._reconciler.check_annotations(pod)

    def _brake_all(self) -> None:
        """Brake in a thread of its own: the workers may be busy, and the controller deletes its refused pod soon."""
        while (pod := self._to_brake.get()) is not None:
            try:
                self._reconciler.brake(pod)
            except APIError as error:
                _log.warning("%s/%s: its controller is not braked yet: %s", pod.namespace, pod.name, error)
            except Exception as error:  # noqa: BLE001  the next refused pod brakes its controller
                _log.error("%s/%s: its controller is not braked: unexpected: %r", pod.namespace, pod.name, error)

    def _watch_own_objects(self) -> None:
        from topomend.controller.own_objects import OwnObjects  # noqa: PLC0415  kopf takes a second to import: serve first

        namespace, access = self._settings.namespace, self._client.access
        self._own_objects = OwnObjects(access, namespace, WATCHED, self._known.told)
        self._own_objects.start()

    def _keep_time(self) -> None:
        """Tell the snapshot the time: assumptions, silences and set-aside nodes end by it."""
        while not self._stopped.wait(TICK_SECONDS):
            self._ingest.put(TimePassed(time.monotonic()))

    def _keep_gating(self) -> None:
        """Have new pods gated as long as this process runs in its pod, whether it leads or not."""
        starting_until = float("-inf")
        while not self._stopped.is_set():
            self._gating_due.clear()
            wait = FORBIDDEN_SECONDS if time.monotonic() < starting_until else ENSURE_SECONDS
            for ensure in self._ensures():
                try:
                    ensure()
                except APIError as error:
                    _log.debug("the gating of new pods could not be checked: %s; retried", error)
                    wait = max(TICK_SECONDS, pause_after(error))
                    starting_until = time.monotonic() + STARTING_SECONDS
                except Exception as error:  # noqa: BLE001  without this thread no pod would be gated one day
                    _log.error("the gating of new pods could not be checked: unexpected: %r; retried", error)
            self._gating_due.wait(wait)

    def _ensures(self) -> Sequence[Callable[[], None]]:
        """What keeps new pods gated; for an operator that observes, what ends that."""
        if self._hand_back:
            return (self._hand_back.ensure,) if self._listed.is_set() else ()
        return self._gating.ensure, lambda: self._parameters.ensure(renews=self._makes_progress())

    @property
    def _late_seconds(self) -> float:
        """After how long without a list something is wrong."""
        return 2 * self._settings.relist_seconds + STUCK_SECONDS

    def _makes_progress(self) -> bool:
        """Whether this operator ungates pods: it leads, knows the cluster, and hangs nowhere."""
        return self._leads.is_set() and self._listed.is_set() and not self._problem()

    def _relist_loop(self) -> None:
        while not self._stopped.is_set():
            self._relist_now.clear()
            wait = self._relist()
            self._tried_to_list = time.monotonic()
            if self._relist_now.wait(wait):
                self._stopped.wait(GATHER_SECONDS)

    def _relist(self) -> float:
        """Relist. Returns the seconds until the next relist."""
        try:
            self._relister.relist(time.monotonic(), tidy=self._leads.is_set() and not self._observes)
        except NotFound as error:
            _log.error("%s; install the kinds: kubectl apply --server-side -f crds/", error)
            return RELIST_RETRY_SECONDS
        except APIError as error:
            _log.warning("the cluster could not be listed: %s; retried", error)
            asked = pause_after(error)
            self._stopped.wait(asked)  # whatever is missed meanwhile
            return max(0.0, RELIST_RETRY_SECONDS - asked)
        except Exception as error:  # noqa: BLE001  without the relist, what the streams miss is lost
            _log.error("the cluster could not be listed: unexpected: %r; retried", error)
            _log.debug("where it happened", exc_info=True)
            return UNEXPECTED_SECONDS
        if not self._listed.is_set():
            _log.info("the cluster is listed")
            self._listed.set()
            self._streams.start()  # not before: a refused pod would be explained by a snapshot that has no node
        self._relisted = time.monotonic()
        return self._settings.relist_seconds

    def _unready(self) -> str:
        """Why this operator could not take over; empty if it could."""
        if not (self._observes or self._parameters.ensured):
            return "the policies' parameters do not name this pod as an owner yet"
        if not (self._observes or self._gating.is_ready):
            return "the admission webhook is not served yet"
        if not self._listed.is_set():
            return "the cluster is not listed yet"
        late = time.monotonic() - self._relisted
        return f"nothing could be listed for {late:.0f} s" if late > self._late_seconds else self._problem()

    def _problem(self) -> str:
        """Why a restart is due; empty if none is. An API server that does not answer is no reason."""
        late = time.monotonic() - self._tried_to_list
        if late > self._late_seconds:
            return f"no list has begun or ended for {late:.0f} s"
        stalled = self._queue.stalled()
        if stalled > STUCK_SECONDS:
            return f"no worker has finished a pod for {stalled:.0f} s, and pods wait"
        if duty := self._duties.stuck(STUCK_SECONDS):
            return f"{duty} has not ended for {STUCK_SECONDS:.0f} s"
        if self._own_objects and self._known.untold_for() > STUCK_SECONDS:
            return "the policies' parameters can be read but are not watched"
        return self._unwatched()

    def _unwatched(self) -> str:
        """Which kind is not watched although the API server answers.

        A list answered since shows that the server is there and this process is at fault.
        """
        for plural, due in self._streams.overdue():
            if self._relisted > due:
                return f"{plural} can be listed but are not watched"
            self._relist_now.set()
        return ""


def _identity(settings: Settings) -> str:
    """The holder's name: by default one that no other process has, an earlier one on this host included."""
    return settings.identity or f"{socket.gethostname()}_{uuid.uuid4()}"
