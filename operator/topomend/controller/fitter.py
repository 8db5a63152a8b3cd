"""Pods that were gated at birth: each is let go, in its turn, to where it fits."""

import time
from collections.abc import Callable

from topomend.controller.again import DONE, Again, sooner
from topomend.controller.announcer import Announcer
from topomend.controller.back_off import BackOff
from topomend.controller.explainer import Explainer
from topomend.controller.metrics import Metrics
from topomend.controller.places import Places
from topomend.controller.pod_id import PodID
from topomend.controller.store import Store
from topomend.decide import plan as plans
from topomend.decide.candidates import LeftOut, unknown_hostnames
from topomend.kube.client import Client
from topomend.model.cluster import WatchedPod
from topomend.model.recent import Recent
from topomend.relaunch import pods
from topomend.watch.events import Event, PodGone, PodSeen
from topomend.watch.view import ClusterView
from topomend.wire.group import FIT_GATE

TURN_SECONDS, TURNS = 0.05, 20
"""How long a pod waits for an older one to take a place that suits both, and how often: the older may be held up."""

MOST_KEPT = 10_000

_Choice = plans.RelaunchOn | plans.Wait | plans.GiveWay


class Fitter:
    """Fits pods by the view alone: a pod that has changed since it was seen is not let go but read anew.

    ``back_off`` holds the pods of an owner back; ``observed`` gets what was read. May be used by several threads, a pod
    each.
    """

    def __init__(  # noqa: PLR0913  the parts it is put together from
        self,
        client: Client,
        store: Store,
        *,
        places: Places,
        explainer: Explainer,
        announcer: Announcer,
        metrics: Metrics,
        back_off: BackOff,
        observed: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._places = client, store, places
        self._explainer, self._announcer, self._metrics = explainer, announcer, metrics
        self._back_off, self._observed, self._clock = back_off, observed, clock
        self._gave_way: dict[PodID, int] = {}
        self._let_go: Recent[str, None] = Recent(MOST_KEPT)

    def forget(self) -> None:
        """Begin where another operator has stopped."""
        self._gave_way.clear()

    def fit(self, pod: PodID) -> Again:
        """Let the pod go to where it fits, if that is known now. Raises APIError."""
        found = self._store.view.gated.get((pod.namespace, pod.name))
        if found is None or found.uid != pod.uid or not self._may_go(found):
            self._gave_way.pop(pod, None)
            return DONE
        held = self._back_off.left(found.owner.uid) if found.owner else 0.0
        if held:
            return Again(held)
        choice = self._places.take(found, self._in_turn(pod, found))
        if isinstance(choice, plans.GiveWay):
            return Again(TURN_SECONDS, on_any_change=True)
        self._gave_way.pop(pod, None)
        if isinstance(choice, plans.RelaunchOn):
            hostnames = tuple(each.hostname for each in choice.candidates)
        else:
            hostnames = unknown_hostnames(self._store.view, choice.survey)
        if not hostnames:
            again = sooner(self._explainer.defer(found, choice.reason)[1], self._places.held_back(found))
            return sooner(again, Again(on_any_change=bool(choice.survey.candidates)))
        return self._send(found, hostnames, choice.reason)

    def _may_go(self, pod: WatchedPod) -> bool:
        """A gate of somebody else's will be seen to go; and what was let go is seen as it was for a moment."""
        return pod.gates == (FIT_GATE,) and not pod.deleting and pod.uid not in self._let_go

    def _in_turn(self, pod: PodID, found: WatchedPod) -> Callable[[ClusterView, LeftOut], _Choice]:
        """How the pod chooses: after the older ones, but not behind one of them for ever."""

        def choose(view: ClusterView, left_out: LeftOut) -> _Choice:
            gave_way = self._gave_way.get(pod, 0)
            choice = plans.choose_in_turn(view, found, self._clock(), left_out, gives_way=gave_way < TURNS)
            if isinstance(choice, plans.GiveWay):
                self._gave_way[pod] = gave_way + 1
            return choice

        return choose

    def _send(self, pod: WatchedPod, hostnames: tuple[str, ...], why: str) -> Again:
        since = self._store.view.gated_since.get((pod.namespace, pod.name))
        if not pods.let_go(self._client, pod, hostnames):
            self._read_anew(pod)
            return DONE
        self._let_go[pod.uid] = None
        if since is not None:
            self._metrics.held_for(self._clock() - since)
        self._announcer.fitted(pod, why)
        return DONE

    def _read_anew(self, pod: WatchedPod) -> None:
        """Whoever reads the view is told what the pod is now, and looks at it again where it is still gated."""
        now_is = pods.read(self._client, pod.namespace, pod.name)
        if now_is is None or now_is.uid != pod.uid:
            self._places.withdraw(pod)
            self._observed(PodGone(pod.namespace, pod.name, pod.uid, self._clock()))
            return
        if now_is.gates:
            self._places.withdraw(pod)  # else it was let go, and only the answer did not come
        self._observed(PodSeen(now_is, self._clock()))
