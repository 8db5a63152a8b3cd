"""Which nodes have the volumes of a gated or refused pod, read just before nodes are chosen for it.

The scheduler lets a pod run only where all volumes are that its claims are bound to. A pod that is narrowed to other
nodes is never bound, and a place that is kept elsewhere is kept for nothing. Owns what is asked of the API server, how
often, and what counts as not known: claims without a volume, which the scheduler binds itself, and all that cannot be
read. Leaves to ``decide`` what follows: a pod whose volumes are not known is kept from no node that might suit it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.changes import PodVolumesRead
from topomend.kube.claim_volumes import NotItsVolume, NoVolume, Terms, read_terms_of
from topomend.kube.client import Client
from topomend.kube.errors import APIError, Forbidden, NotFound
from topomend.kube.resources import Resource
from topomend.model.pods.scheduling import Placement, WatchedPod, is_refusal
from topomend.reconcile.object_faults import concerns_all
from topomend.reconcile.result import DONE, Result
from topomend.reconcile.store import Store
from topomend.replay.lifecycle.node_affinity import parsed
from topomend.runtime.backoff import Exponential
from topomend.runtime.queues.fair_permits import FairPermits
from topomend.wire.document import MalformedObject
from topomend.wire.pods.scheduling import MAX_CLAIMS

FRESH_SECONDS = 5.0
"""How long it is known of a claim where its volume is: pods that share one ask once."""

AGAIN = Exponential(2.0, 300.0)
"""After how long the volumes of a pod that still waits are looked up once more: its claim may be another by then."""

COMING_SECONDS, RETRY_SECONDS = 2.0, 0.25
"""How long a pod waits for a claim or volume that is not there or bound yet, and when it is tried again. The scheduler
would not bind it meanwhile; who creates both creates either first."""

LATE_SECONDS = 10.0
"""For how long pods come before this one that kube-scheduler found before its claims were bound."""

ANSWER_SECONDS, REST_SECONDS = 2.0, 30.0
"""How long an answer may take, and when the last one about a pod is asked for; and how long nobody is asked after one
that did not come: no pod waits for it."""

DENIED_SECONDS = 300.0
"""How long nobody is asked in a namespace where the right is missing; volumes have none."""

READERS, TURN_SECONDS, TURNS_SECONDS = 2, 0.05, 10.0
"""How many pods' volumes are looked up at a time, how long a worker waits for that, and how long a pod is tried again
for it: workers are left to all other pods, however slow the answers are."""

GROUP_SECONDS = 5.0
"""How long the volumes of the pods of a group are looked up in a row. Then groups of other namespaces have their turn,
and this one goes on until it has been tried for TURNS_SECONDS: the volumes of the rest are not known."""

MAX_CLAIMS_KNOWN, MAX_ENTRIES = 1_000, 10_000

_log = logging.getLogger(__name__)


class _Unknown(Exception):
    """It cannot be told where a volume is."""


class _Missing(Exception):
    """A claim is not there, its volume is not, or it is not bound to it: until then no scheduler binds the pod."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """When a pod's volumes were looked for at first, how often that was done, and when it is ``due`` again.

    ``late``: whether something was missing at first.
    """

    since: float
    times: int
    due: float
    late: bool = False


class Volumes:
    """Looks volumes up. May be used by several threads, a pod each. Times are in seconds."""

    def __init__(self, client: Client, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._store, self._clock = client, store, clock
        self._readers, self._groups = threading.BoundedSemaphore(READERS), FairPermits(READERS, clock)
        self._looked: BoundedDict[str, _Looked] = BoundedDict(MAX_ENTRIES)
        self._known: BoundedDict[tuple[str, str, bool], tuple[float, Terms | None]] = BoundedDict(MAX_CLAIMS_KNOWN)
        self._denied: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._rests_until = 0.0

    def look_up(self, pod: WatchedPod) -> Result:
        """Have the snapshot know where the volumes of the gated or refused pod are; or when to try again, at once where
        it is not to wait for that. Raises nothing: what cannot be read is not known."""
        if not pod.claims:
            return DONE
        looked = self._looked_at(pod)
        now = self._clock()  # after that: a new pod is due from then on
        if now < looked.due:
            return DONE
        if not self._readers.acquire(timeout=TURN_SECONDS):
            return self._later(looked)
        is_new = now < looked.since + COMING_SECONDS
        try:
            volumes = self._volumes_of(pod, bound=is_new)
        except _Missing:
            if is_new:
                self._looked[pod.uid] = replace(looked, late=True)
                return Result(RETRY_SECONDS)
            volumes = None
        finally:
            self._readers.release()
        times = looked.times + 1
        self._looked[pod.uid] = replace(looked, times=times, due=self._clock() + AGAIN.seconds(times))
        self._store.apply(PodVolumesRead(pod.namespace, pod.name, pod.uid, volumes))
        return DONE

    def were_late(self, pod: WatchedPod) -> bool:
        """Whether claims of the pod were not bound when it came, a short time ago: schedulers passed it over then."""
        looked = self._looked.get(pod.uid)
        return looked is not None and looked.late and self._clock() < looked.since + LATE_SECONDS

    def look_up_all(self, pods: Sequence[WatchedPod]) -> Result:
        """As ``look_up``, for pods of one namespace that go together: first those that were never looked up.

        All are due again no sooner than after as long as this took: the first would be as the last ones are read.
        """
        looked = [(pod, self._looked_at(pod)) for pod in pods if pod.claims]
        began = self._clock()
        due = [(pod, so_far) for pod, so_far in looked if so_far.due <= began]
        if not due:
            return DONE
        namespace = pods[0].namespace
        if not self._groups.take(namespace, RETRY_SECONDS):
            return Result(RETRY_SECONDS)
        try:
            new = [pod for pod, so_far in due if not so_far.times]
            later = self._look_up_until(began + GROUP_SECONDS, new or [pod for pod, _ in due])
        finally:
            self._groups.give_back(namespace)
        if later.after is None:
            self._leave([pod for pod, _ in looked], self._clock() - began)
        return later

    def _look_up_until(self, ends: float, pods: Sequence[WatchedPod]) -> Result:
        for pod in pods:
            later = self.look_up(pod) if self._clock() < ends else self._later(self._looked_at(pod))
            if later.after is not None:
                return later
        return DONE

    def _leave(self, pods: Sequence[WatchedPod], seconds: float) -> None:
        """Have none of these pods be due earlier than in so many seconds."""
        due = self._clock() + seconds
        for pod in pods:
            looked = self._looked_at(pod)
            self._looked[pod.uid] = replace(looked, due=max(looked.due, due))

    def _looked_at(self, pod: WatchedPod) -> _Looked:
        """What has been done for the pod so far; the volumes of a new one are looked for from now on."""
        now = self._clock()
        looked = self._looked[pod.uid] = self._looked.get(pod.uid) or _Looked(now, 0, now)
        return looked

    def _later(self, looked: _Looked) -> Result:
        """When to try again for a turn, which a pod does not wait for without an end."""
        return Result(RETRY_SECONDS) if self._clock() < looked.since + TURNS_SECONDS else DONE

    def of(self, pod: WatchedPod) -> tuple[Terms, ...] | None:
        """The terms of the pod's volumes, for one that the snapshot may not have; None where they are not known now."""
        if not pod.claims:
            return ()
        if not self._readers.acquire(timeout=TURN_SECONDS):
            return None
        try:
            return self._volumes_of(pod)
        except _Missing:
            return None
        finally:
            self._readers.release()

    def again(self, pod: WatchedPod) -> Result | None:
        """When the volumes of a pod that waits are to be looked up once more; None for one without claims."""
        looked = self._looked.get(pod.uid)
        return Result(max(0.0, looked.due - self._clock())) if pod.claims and looked else None

    def _volumes_of(self, pod: WatchedPod, *, bound: bool = False) -> tuple[Terms, ...] | None:
        """The terms of all volumes that have any; None where one of them is not known.

        Raises _Missing, where claims must be ``bound`` also for one that is not.
        """
        if len(pod.claims) > MAX_CLAIMS:
            return None
        ends = self._clock() + ANSWER_SECONDS
        try:
            return tuple(self._terms_of_all(pod, ends, bound))
        except _Unknown:
            return None

    def _terms_of_all(self, pod: WatchedPod, ends: float, bound: bool) -> Iterator[Terms]:
        for claim in pod.claims:
            terms = self._terms_of(pod, claim, ends, bound)
            if terms is not None:
                yield terms

    def _terms_of(self, pod: WatchedPod, claim: str, ends: float, bound: bool) -> Terms | None:
        """The terms of the volume of a claim; None where it has none. Raises _Unknown, _Missing."""
        key, now = (pod.namespace, claim, bound), self._clock()
        known = self._known.get(key)
        if known and now < known[0]:
            return known[1]
        try:
            terms = self._read(pod, claim, ends, bound)
        except NotFound as error:
            raise _Missing from error
        except MalformedObject as error:
            raise _Unknown from error
        self._known[key] = self._clock() + FRESH_SECONDS, terms
        return terms

    def _read(self, pod: WatchedPod, claim: str, ends: float, bound: bool) -> Terms | None:
        def get(resource: Resource, name: str, namespace: str) -> object:
            return self._get(resource, name, namespace, ends)

        try:
            replaced = pod.uid if is_refusal(pod) else ""
            terms = read_terms_of(get, pod.namespace, claim, replaced=replaced, bound=bound)
        except NoVolume as error:
            raise _Unknown from error
        except NotItsVolume as error:
            raise _Missing from error
        return terms if terms is None else parsed(Placement(terms=terms)).terms

    def _get(self, resource: Resource, name: str, namespace: str, ends: float) -> object:
        """The object. Raises NotFound, and _Unknown where it cannot be read for whatever other reason."""
        now = self._clock()
        if not name or now > ends or now < max(self._rests_until, self._denied.get(namespace, 0.0)):
            raise _Unknown
        try:
            return self._client.get(resource, name, namespace, seconds=ANSWER_SECONDS)
        except NotFound:
            raise
        except Forbidden as error:
            if namespace not in self._denied:
                _log.warning("pods go wherever their volumes may be, for these cannot be read: %s", error)
            self._denied[namespace] = now + DENIED_SECONDS
            raise _Unknown from error
        except APIError as error:
            if concerns_all(error):
                self._rest(str(error))
            raise _Unknown from error

    def _rest(self, why: str) -> None:
        self._rests_until = self._clock() + REST_SECONDS
        _log.warning("no pod's volumes are looked up for %.0f s: %s", REST_SECONDS, why)
