"""Pods that were gated at birth: each is let go, in its turn, to where it fits."""

import time
from collections.abc import Callable

from topomend.cache.changes import Event, PodRemoved, PodUpdated
from topomend.cache.snapshot import Snapshot
from topomend.decide import plan as plans
from topomend.decide.feasibility import ExcludedNodes, hostnames_without_agent
from topomend.kube.client import Client
from topomend.model.bounded_dict import BoundedDict
from topomend.model.cluster import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.explainer import Explainer
from topomend.reconcile.metrics import Metrics
from topomend.reconcile.pod_id import PodID
from topomend.reconcile.reservations import Reservations
from topomend.reconcile.result import DONE, Result, earliest
from topomend.reconcile.store import Store
from topomend.relaunch import pod_requests
from topomend.runtime.backoff import Backoff
from topomend.wire.group import FIT_GATE

TURN_SECONDS, TURNS = 0.05, 20
"""How long a pod waits for an older one to take a place that suits both, and how often: the older may be held up."""

MAX_ENTRIES = 10_000

_Choice = plans.RelaunchOn | plans.Wait | plans.Yield


class GatedPods:
    """Fits pods by the view alone: a pod that has changed since it was seen is not let go but read anew.

    ``backoff`` holds the pods of an owner back; ``report`` gets what was read. May be used by several threads, a pod
    each.
    """

    def __init__(  # noqa: PLR0913  the parts it is put together from
        self,
        client: Client,
        store: Store,
        *,
        reservations: Reservations,
        explainer: Explainer,
        announcer: Announcer,
        metrics: Metrics,
        backoff: Backoff,
        report: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._reservations = client, store, reservations
        self._explainer, self._announcer, self._metrics = explainer, announcer, metrics
        self._back_off, self._report, self._clock = backoff, report, clock
        self._gave_way: dict[PodID, int] = {}
        self._let_go: BoundedDict[str, None] = BoundedDict(MAX_ENTRIES)

    def forget(self) -> None:
        """Begin where another operator has stopped."""
        self._gave_way.clear()

    def fit(self, pod: PodID) -> Result:
        """Let the pod go to where it fits, if that is known now. Raises APIError."""
        found = self._store.snapshot.gated.get((pod.namespace, pod.name))
        if found is None or found.uid != pod.uid or not self._may_go(found):
            self._gave_way.pop(pod, None)
            return DONE
        held = self._back_off.left(found.owner.uid) if found.owner else 0.0
        if held:
            return Result(held)
        choice = self._reservations.take(found, self._in_turn(pod, found))
        if isinstance(choice, plans.Yield):
            return Result(TURN_SECONDS, on_any_change=True)
        self._gave_way.pop(pod, None)
        if isinstance(choice, plans.RelaunchOn):
            hostnames = tuple(each.hostname for each in choice.candidates)
        else:
            hostnames = hostnames_without_agent(self._store.snapshot, choice.diagnosis)
        if not hostnames:
            result = earliest(self._explainer.defer(found, choice.reason)[1], self._reservations.backing_off(found))
            return earliest(result, Result(on_any_change=bool(choice.diagnosis.candidates)))
        return self._send(found, hostnames, choice.reason)

    def _may_go(self, pod: WatchedPod) -> bool:
        """A gate of somebody else's will be seen to go; and what was let go is seen as it was for a moment."""
        return pod.gates == (FIT_GATE,) and not pod.deleting and pod.uid not in self._let_go

    def _in_turn(self, pod: PodID, found: WatchedPod) -> Callable[[Snapshot, ExcludedNodes], _Choice]:
        """How the pod chooses: after the older ones, but not behind one of them for ever."""

        def choose(snapshot: Snapshot, excluded_nodes: ExcludedNodes) -> _Choice:
            gave_way = self._gave_way.get(pod, 0)
            choice = plans.choose_in_order(snapshot, found, self._clock(), excluded_nodes, yields=gave_way < TURNS)
            if isinstance(choice, plans.Yield):
                self._gave_way[pod] = gave_way + 1
            return choice

        return choose

    def _send(self, pod: WatchedPod, hostnames: tuple[str, ...], why: str) -> Result:
        since = self._store.snapshot.gated_since.get((pod.namespace, pod.name))
        if not pod_requests.ungate(self._client, pod, hostnames):
            self._read_anew(pod)
            return DONE
        self._let_go[pod.uid] = None
        if since is not None:
            self._metrics.held_for(self._clock() - since)
        self._announcer.fitted(pod, why)
        return DONE

    def _read_anew(self, pod: WatchedPod) -> None:
        """Whoever reads the view is told what the pod is now, and looks at it again where it is still gated."""
        now_is = pod_requests.read(self._client, pod.namespace, pod.name)
        if now_is is None or now_is.uid != pod.uid:
            self._reservations.forget(pod)
            self._report(PodRemoved(pod.namespace, pod.name, pod.uid, self._clock()))
            return
        if now_is.gates:
            self._reservations.forget(pod)  # else it was let go, and only the answer did not come
        self._report(PodUpdated(now_is, self._clock()))
