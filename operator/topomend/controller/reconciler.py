"""One pod at a time: what is true of it, what the plan is, and the plan carried out as far as it goes now.

Level-triggered: a call begins from what the API server says and may be repeated at any time. Raises APIError where an
answer did not come; whoever calls tries again later.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol, TypeVar

from topomend.controller.announcer import Announcer
from topomend.controller.back_off import BackOff, hold_seconds
from topomend.controller.brake import Brake
from topomend.controller.metrics import Metrics
from topomend.controller.observer import PodID
from topomend.controller.settings import Settings
from topomend.controller.store import Store
from topomend.controller.token_bucket import TokenBucket
from topomend.decide import plan as plans
from topomend.decide.candidates import NOTHING_FULL, UNKNOWN, Refuser, Survey
from topomend.decide.eligibility import Limits, eligibility, renames
from topomend.decide.never import why_never
from topomend.decide.scheduling import HOSTNAME_LABEL, lacking_total
from topomend.kube.client import NAMESPACES, PODS, RELAUNCHES, Client
from topomend.kube.errors import Conflict, NotFound
from topomend.model.cluster import WatchedPod
from topomend.model.pod import Pod
from topomend.model.relaunch import Relaunch, Step
from topomend.relaunch import manifest, protocol
from topomend.relaunch.driver import Chosen, Driver, Outcome, recorded
from topomend.relaunch.guard import Guard
from topomend.relaunch.notes import Note, Notes
from topomend.watch.events import Disagreed, Event, Released, Withdrawn, fold
from topomend.watch.view import ClusterView, Refusal
from topomend.wire.cluster import read_placement, read_watched_pod
from topomend.wire.document import Document
from topomend.wire.group import (
    FIT_GATE,
    MAX_ATTEMPTS_ANNOTATION,
    NAME_POLICY_ANNOTATION,
    RELAUNCH_ANNOTATION,
    RELAUNCH_FINALIZER,
)
from topomend.wire.pod import read_pod
from topomend.wire.relaunch import read_relaunch, record_name

RETRY_SECONDS = 60.0
"""How long a pod that waits for a node, or for the API server's permission, goes without being looked at."""

NAMESPACE_SECONDS = 30.0
CORPSES_A_SECOND, CORPSES_AT_ONCE = 10.0, 50
EXPLAINED_KEPT = 10_000

TURN_SECONDS, TURNS = 0.05, 20
"""How long a pod waits for an older one to take a place that suits both, and how often: the older may be held up."""

MOST_RECORDED = 1_000_000
"""A manifest of more bytes is not relaunched: an object may have 1.5 MiB in etcd, and a record holds more than this."""

UNENDED = "status.phase!=Failed,status.phase!=Succeeded"
"""Pods that count against their node's totals."""

_log = logging.getLogger(__name__)

_Decided_co = TypeVar("_Decided_co", bound=plans.Plan | plans.GiveWay, covariant=True)
_Choice = plans.RelaunchOn | plans.Wait | plans.GiveWay


class _Decision(Protocol[_Decided_co]):
    """A decision that leaves out the nodes that are ``full``."""

    def __call__(self, view: ClusterView, full: Mapping[str, str]) -> tuple[_Decided_co, tuple[Event, ...]]: ...


@dataclass(frozen=True)
class Again:
    """When to look at the pod again: after so many seconds (None is not at all), when a node changes, and when one
    changes in more than in what its pods hold."""

    after: float | None = None
    on_node_change: bool = False
    on_machine_change: bool = False


DONE = Again()


@dataclass(frozen=True)
class _Unexplained:
    """A refusal whose explanation waits for the node's next publication."""

    refusal: Refusal
    record: Relaunch | None


class Reconciler:
    """Reconciles pods. May be used by several threads, a pod each.

    ``observed`` gets what is found out by the way.
    """

    def __init__(  # noqa: PLR0913  the parts it is put together from
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        settings: Settings,
        observed: Callable[[Event], None],
        *,
        metrics: Metrics,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._settings, self._observed, self._clock = settings, observed, time.monotonic
        self._metrics = metrics
        self._relaunches = TokenBucket(settings.relaunch_rate, settings.relaunch_burst)
        self._corpses = TokenBucket(CORPSES_A_SECOND, CORPSES_AT_ONCE)
        self._brake = Brake(client, settings.namespace)
        self._guard = Guard(client)
        self._notes = Notes(client, self._clock, _rfc3339)
        self._back_off = BackOff(self._clock)
        self._namespaces: dict[str, tuple[float, Limits]] = {}
        self._unexplained: dict[PodID, _Unexplained] = {}
        self._gave_way: dict[PodID, int] = {}
        self._lock = threading.Lock()

    def reconcile(self, pod: PodID) -> Again:
        """Do for ``pod`` what can be done now."""
        unexplained = self._explain_late(pod)
        refusal = self._store.view.refused.get(pod.uid)
        again = self._go_on(pod) if refusal is None else self._begin(pod, refusal)
        return again if unexplained is None else _sooner(again, unexplained)

    def brake(self, pod: WatchedPod) -> None:
        """Have the next pods of a refused pod's controller gated. Raises APIError.

        To be called at the first sight of the pod: some controllers delete it at once.
        """
        if pod.owner is None or not eligibility(pod, self._limits(pod.namespace)).is_remade:
            return
        problem = self._brake.press(pod)
        if problem:
            self._announcer.not_braked(pod, problem)
        if pod.released:
            self._back_off.failed(pod.owner.uid, pod.uid)

    def take_over(self) -> None:
        """Begin where another operator has stopped: what it wrote is not known here."""
        self._brake.forget()
        with self._lock:
            self._unexplained.clear()
            self._gave_way.clear()

    def ease_brake(self) -> None:
        """Take those owners off the brake whose pods are admitted again. Raises APIError."""
        self._brake.ease(each.owner.uid for each in self._store.view.gated.values() if each.owner)

    def look_for_departed(self) -> None:
        """Free the places of pods that left the watch not because they run but because they ended, or are ending.

        Their nodes may never publish them: a pod can come and go between two looks of an agent. Of those that no
        scheduler has bound, and whose places are about to be freed, it is told. Raises APIError.
        """
        for (namespace, name), going in self._store.view.on_their_way.items():
            if going.departed:
                if not self._runs(namespace, name, going.pod.uid):
                    self._observed(Withdrawn(namespace, name))
            elif going.expires is not None and going.expires <= self._clock():
                self._tell_of_unbound(namespace, name, going.nodes)

    def _tell_of_unbound(self, namespace: str, name: str, nodes: Sequence[str]) -> None:
        try:
            found = read_watched_pod(self._client.get(PODS, name, namespace))
        except NotFound:
            return
        if found.released and found.phase == "Pending" and not found.node and not found.deleting and not found.gates:
            self._announcer.unbound(found, nodes)

    def _runs(self, namespace: str, name: str, uid: str) -> bool:
        try:
            found = self._client.get(PODS, name, namespace)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == uid and found.get("status", {}).get("phase") in ("Pending", "Running"))

    # A pod that is refused

    def _begin(self, pod: PodID, refusal: Refusal) -> Again:
        previous = self._previous(refusal.pod)
        if previous:
            refusal = replace(refusal, pod=_as_first_asked(refusal.pod, previous))
        limits = self._limits(pod.namespace)
        plan = self._plan(refusal, limits)
        self.brake(refusal.pod)
        match plan:
            case plans.LeaveAlone():
                return self._leave(pod, refusal, plan)
            case plans.ClearCorpse():
                return self._clear(refusal, plan)
            case plans.Wait() if RELAUNCH_FINALIZER not in refusal.pod.finalizers:
                again = self._explain(pod, refusal, plan.survey, None)
                note, later = self._defer(refusal.pod, plan.reason)
                self._note(refusal.pod, _with_verdicts(note, plan.survey), limits, previous)
                return _sooner(later, again)
        if RELAUNCH_FINALIZER not in refusal.pod.finalizers:
            held = self._held_up(refusal, limits, previous)
            if held:
                self._withdraw(pod)
                return held
        return self._relaunch(pod, refusal, plan.survey, limits)

    def _held_up(self, refusal: Refusal, limits: Limits, previous: Relaunch | None) -> Again | None:
        """When to try again, where the relaunch cannot begin now though a node admits the pod."""
        pod = refusal.pod
        # A replacement that was refused as well was let go by mistake: each one waits twice as long as the last.
        held = refusal.seen + hold_seconds(pod.attempt) - self._clock() if pod.attempt else 0.0
        wait = held if held > 0 else self._relaunches.take()
        if wait:
            return Again(wait)
        content = self._client.get(PODS, pod.name, pod.namespace)
        found = read_watched_pod(content)
        if found.uid != pod.uid:
            return DONE
        stripped = manifest.stripped(content, previous)
        record = recorded(found, record_name(pod.name, pod.uid), stripped, renames=renames(pod, limits))
        if len(json.dumps(record.manifest)) > MOST_RECORDED:
            self._announcer.skipped(
                pod, f"{pod.name} is too large to be recorded: its manifest would not fit an object"
            )
            return DONE
        lacking = self._guard.creator_lacks(pod.namespace, found.creator)
        note = Note("CreatorMayNot", lacking) if lacking else None
        if note is None and (denied := self._guard.denied(record)):
            note = Note("NotCreatable", denied)
        if note is None:
            return None
        self._announcer.held_up(pod, note.message)
        self._note(pod, note, limits, previous)
        return Again(RETRY_SECONDS)

    def _note(self, pod: WatchedPod, note: Note, limits: Limits, previous: Relaunch | None) -> None:
        """Say in the refused pod's record what it waits for."""
        record = self._store.view.relaunches.get((pod.namespace, record_name(pod.name, pod.uid)))
        if record:
            self._notes.add(record, note)
        else:
            self._notes.begin(pod, previous, note, renames=renames(pod, limits))

    def _plan(self, refusal: Refusal, limits: Limits) -> plans.Plan:
        """The plan, and where it is to relaunch, the place taken at once."""

        def decision(view: ClusterView, full: Mapping[str, str]) -> tuple[plans.Plan, tuple[Event, ...]]:
            withdrawn = Withdrawn(refusal.pod.namespace, refusal.pod.name)
            plan = plans.plan(fold(view, withdrawn), refusal, limits, full)
            if not isinstance(plan, plans.RelaunchOn):
                return plan, (withdrawn,)
            successor = replace(refusal.pod.pod, uid="")
            return plan, (withdrawn, Released(successor, plan.nodes, self._clock()))

        return self._decide(refusal.pod, decision)

    def _decide(self, pod: WatchedPod, decision: _Decision[_Decided_co]) -> _Decided_co:
        """Decide, and decide again without the nodes whose totals other pods have used up."""
        full: dict[str, str] = {}
        while True:
            begun = self._clock()
            plan = self._store.decide(partial(decision, full=full))
            if isinstance(plan, plans.RelaunchOn | plans.Wait):
                self._metrics.surveyed(plan.survey, self._store.view.publications, self._clock() - begun)
            lacking = self._lacking_on(plan.nodes[0], pod) if isinstance(plan, plans.RelaunchOn) else ""
            if not isinstance(plan, plans.RelaunchOn) or not lacking:
                return plan
            full[plan.nodes[0]] = lacking

    def _lacking_on(self, name: str, pod: WatchedPod) -> str:
        """The resource of which the node has too little left in total: the pods there are asked for now.

        It is asked of the best node alone, for that takes long; the scheduler leaves out those named beside it that are
        full, which others may become in the meantime.
        """
        node = self._store.view.nodes.get(name)
        return lacking_total(node, pod.pod, self._pods_on(name, pod)) if node else ""

    def _pods_on(self, name: str, pod: WatchedPod) -> list[Pod]:
        listing = self._client.list(PODS, fields=f"spec.nodeName={name},{UNENDED}", cached=True)
        return [read_pod(each) for each in listing.items if each["metadata"]["uid"] != pod.uid]

    def _relaunch(self, pod: PodID, refusal: Refusal, survey: Survey, limits: Limits) -> Again:
        outcome = self._drive(pod, refusal.version, may_start=True, renamed=renames(refusal.pod, limits))
        if outcome.launched:
            self._metrics.launched_after(self._clock() - refusal.seen)
        again = self._explain(pod, refusal, survey, outcome.record)
        return _sooner(self._ended(pod, outcome, refusal.pod.max_attempts or limits.max_attempts), again)

    def _leave(self, pod: PodID, refusal: Refusal, plan: plans.LeaveAlone) -> Again:
        if RELAUNCH_FINALIZER in refusal.pod.finalizers:
            return self._ended(pod, self._drive(pod, None, may_start=False), 0)
        if refusal.pod.deleting:
            return DONE
        again = self._explain(pod, refusal, None, None)
        if plan.limit_reached:
            self._announcer.limit_reached(refusal.pod, plan.reason)
        else:
            self._announcer.skipped(refusal.pod, plan.reason)
        return again or DONE

    def _clear(self, refusal: Refusal, plan: plans.ClearCorpse) -> Again:
        """Explain first, delete then: the explanation is found by whoever still sees the pod, and on its owner."""
        judgement = plans.judge(self._store.view, refusal, self._clock())
        if isinstance(judgement, plans.NotYet):
            return Again(judgement.until - self._clock(), on_node_change=True)
        self._tell(refusal, judgement, None, None)
        wait = self._corpses.take()
        if wait:
            return Again(wait)
        corpse = refusal.pod
        try:
            self._client.delete(PODS, corpse.name, corpse.namespace, uid=corpse.uid, version=corpse.version)
        except NotFound:
            return DONE
        except Conflict:
            return Again(1.0)
        self._announcer.skipped(corpse, f"{plan.reason}; the failed pod was deleted")
        return DONE

    # A pod whose relaunch has begun, before a crash or in another call

    def _go_on(self, pod: PodID) -> Again:
        gated = self._store.view.gated.get((pod.namespace, pod.name))
        if gated and gated.uid == pod.uid and FIT_GATE in gated.gates:
            return self._fit(pod)
        name = self._record_of(pod)
        if (pod.namespace, name) not in self._store.view.relaunches and not self._is_gated(pod):
            return DONE
        limits = self._limits(pod.namespace)
        return self._ended(pod, self._drive(pod, None, may_start=False), limits.max_attempts)

    def _is_gated(self, pod: PodID) -> bool:
        gated = self._store.view.gated.get((pod.namespace, pod.name))
        return gated is not None and gated.replaces == pod.uid

    def _fit(self, pod: PodID) -> Again:
        """Let a pod that was gated at birth go to where it fits, if that is known now."""
        if self._still_gives_way(pod):
            return Again(TURN_SECONDS, on_node_change=True)
        try:
            content = self._client.get(PODS, pod.name, pod.namespace)
        except NotFound:
            self._gave_way.pop(pod, None)
            return DONE
        found = read_watched_pod(content)
        if found.uid != pod.uid or found.deleting or found.gates != (FIT_GATE,):
            self._gave_way.pop(pod, None)
            return DONE  # a gate of somebody else's: its going will be seen
        held = self._back_off.left(found.owner.uid) if found.owner else 0.0
        if held:
            return Again(held)
        choice = self._take_place(found, self._in_turn(pod, found))
        if isinstance(choice, plans.GiveWay):
            return Again(TURN_SECONDS, on_node_change=True)
        self._gave_way.pop(pod, None)
        chosen = _chosen(choice)
        hostnames = chosen.hostnames or self._unknown_to_replay(chosen)
        if not hostnames:
            return self._defer(found, chosen.reason)[1]
        since = self._store.view.gated_since.get((pod.namespace, pod.name))
        try:
            self._client.merge(PODS, pod.name, manifest.launch(content, hostnames), pod.namespace)
        except (Conflict, NotFound):
            self._withdraw(pod)
            return Again(1.0)
        if since is not None:
            self._metrics.held_for(self._clock() - since)
        self._announcer.fitted(found, chosen.reason)
        return DONE

    def _unknown_to_replay(self, chosen: Chosen) -> tuple[str, ...]:
        """The hostnames of nodes without an agent: they count as admitting, after all that are known to."""
        nodes = self._store.view.nodes
        names = [each.node for each in chosen.verdicts if each.reason == UNKNOWN and each.node in nodes]
        return tuple(nodes[name].labels[HOSTNAME_LABEL] for name in names)

    def _drive(self, pod: PodID, refused_at: str | None, *, may_start: bool, renamed: bool = False) -> Outcome:
        places = {pod}

        def choose(new: WatchedPod, record: Relaunch) -> Chosen:
            places.add(PodID(new.namespace, new.name, new.uid))
            return self._choose(new, Refuser(record.refused_by, refused_at))

        driver = Driver(self._client, choose, _rfc3339, self._previous, renames=renamed)
        launched = None
        try:
            outcome = driver.run(pod.namespace, pod.name, pod.uid, self._record_of(pod), may_start=may_start)
            launched = outcome.launched
            return outcome
        finally:
            for place in places:
                if launched is None or place.name != launched.name:
                    self._withdraw(place)

    def _record_of(self, pod: PodID) -> str:
        """The name of a refused pod's record; its replacement, which may have another name, says which."""
        gated = self._store.view.gated.get((pod.namespace, pod.name))
        if gated and gated.replaces == pod.uid and gated.record:
            return gated.record
        return record_name(pod.name, pod.uid)

    def _in_turn(self, pod: PodID, found: WatchedPod) -> Callable[[ClusterView, Mapping[str, str]], _Choice]:
        """How a pod that was gated at birth chooses: after the older ones, but not behind one of them for ever."""

        def choose(view: ClusterView, full: Mapping[str, str]) -> _Choice:
            gave_way = self._gave_way.get(pod, 0)
            choice = plans.choose_in_turn(view, found, self._clock(), full, gives_way=gave_way < TURNS)
            if isinstance(choice, plans.GiveWay):
                self._gave_way[pod] = gave_way + 1
            return choice

        return choose

    def _still_gives_way(self, pod: PodID) -> bool:
        """Whether it is to wait for its turn on, by the view alone: many that wait would ask the API server often."""
        gated = self._store.view.gated.get((pod.namespace, pod.name))
        if gated is None or pod not in self._gave_way:
            return False
        return isinstance(self._in_turn(pod, gated)(self._store.view, NOTHING_FULL), plans.GiveWay)

    def _choose(self, pod: WatchedPod, refuser: Refuser) -> Chosen:
        """Where the replacement goes, its place taken; the place it had until now is free for the choice."""
        choice = self._take_place(pod, lambda view, full: plans.choose(view, pod, refuser, full))
        assert not isinstance(choice, plans.GiveWay)  # noqa: S101  only what was gated at birth takes turns
        return _chosen(choice)

    def _take_place(self, pod: WatchedPod, choose: Callable[[ClusterView, Mapping[str, str]], _Choice]) -> _Choice:
        def decision(view: ClusterView, full: Mapping[str, str]) -> tuple[_Choice, tuple[Event, ...]]:
            withdrawn = Withdrawn(pod.namespace, pod.name)
            choice = choose(fold(view, withdrawn), full)
            if not isinstance(choice, plans.RelaunchOn):
                return choice, (withdrawn,)
            return choice, (withdrawn, Released(pod.pod, choice.nodes, self._clock()))

        return self._decide(pod, decision)

    def _withdraw(self, pod: PodID) -> None:
        self._store.fold(Withdrawn(pod.namespace, pod.name))

    def _ended(self, pod: PodID, outcome: Outcome, max_attempts: int) -> Again:
        record = outcome.record
        if record and record.step.ended:
            self._metrics.ended(record.uid, record.step.value.lower())
        if outcome.launched and record:
            _log.info("%s/%s relaunched: %s", pod.namespace, pod.name, outcome.chosen.reason)
            self._announcer.relaunched(outcome.launched, record, outcome.chosen.reason, max_attempts)
        elif record and record.step in (Step.CANCELLED, Step.SUPERSEDED):
            self._announcer.ended(record)
        if isinstance(outcome.last, protocol.Stop):
            return DONE
        if record is None:
            return self._unrecorded(pod, outcome.last)
        if record.step is Step.BLOCKED or outcome.last.waiting_for == protocol.NOT_ITS_MANIFEST:
            self._announcer.blocked(record, outcome.last.waiting_for)
            return Again(RETRY_SECONDS)
        if record.step is Step.CREATED:
            gated = self._store.view.gated.get((pod.namespace, record.replacement_name))
            if gated:
                note, again = self._defer(gated, outcome.chosen.reason or outcome.last.waiting_for)
                chosen = outcome.chosen
                self._notes.add(record, replace(note, verdicts=chosen.verdicts, counts=chosen.counts))
                return again
            return Again(RETRY_SECONDS, on_node_change=True)
        return Again(1.0)

    def _unrecorded(self, pod: PodID, pause: protocol.Pause) -> Again:
        """The API server takes no record of the pod, which is left as it was."""
        refusal = self._store.view.refused.get(pod.uid)
        if refusal:
            self._announcer.held_up(refusal.pod, pause.waiting_for)
        return Again(RETRY_SECONDS)

    def _defer(self, pod: WatchedPod, why: str) -> tuple[Note, Again]:
        """Say that no node admits the pod now, or that none ever can, and wait for what could change that."""
        never = why_never(self._store.view, pod.pod, pod.placement)
        if never:
            self._announcer.never(pod, never)
            return Note("NoNodeCanEverAdmit", never, never=True), Again(on_machine_change=True)
        self._announcer.deferred(pod, why)
        return Note("NoNodeAdmitsNow", why), Again(RETRY_SECONDS, on_node_change=True)

    # Why it was refused

    def _explain(self, pod: PodID, refusal: Refusal, survey: Survey | None, record: Relaunch | None) -> Again | None:
        """Say why the node refused the pod, or keep the question until its next publication."""
        judgement = plans.judge(self._store.view, refusal, self._clock())
        if isinstance(judgement, plans.NotYet):
            with self._lock:
                if len(self._unexplained) < EXPLAINED_KEPT:
                    self._unexplained[pod] = _Unexplained(refusal, record)
            return Again(max(0.0, judgement.until - self._clock()), on_node_change=True)
        self._tell(refusal, judgement, survey, record)
        return None

    def _tell(
        self,
        refusal: Refusal,
        judgement: plans.Explained | plans.Disagreed,
        survey: Survey | None,
        record: Relaunch | None,
    ) -> None:
        if isinstance(judgement, plans.Disagreed):
            self._observed(Disagreed(refusal.pod.node, refusal.pod.uid, self._clock()))
        self._metrics.judged(refusal.pod.uid, judgement)
        self._announcer.judged(refusal.pod, judgement, survey, record)

    def _explain_late(self, pod: PodID) -> Again | None:
        with self._lock:
            kept = self._unexplained.pop(pod, None)
        return self._explain(pod, kept.refusal, None, kept.record) if kept else None

    # What is read besides

    def _previous(self, pod: WatchedPod) -> Relaunch | None:
        """The record that made this pod, where it is a replacement itself."""
        for name in manifest.replaced_names(pod.name, pod.attempt) if pod.replaces else ():
            try:
                return read_relaunch(self._client.get(RELAUNCHES, record_name(name, pod.replaces), pod.namespace))
            except NotFound:
                continue
        return None

    def _limits(self, namespace: str) -> Limits:
        now = self._clock()
        known = self._namespaces.get(namespace)
        if known and now - known[0] < NAMESPACE_SECONDS:
            return known[1]
        limits = self._read_limits(namespace)
        self._namespaces[namespace] = (now, limits)
        return limits

    def _read_limits(self, namespace: str) -> Limits:
        try:
            annotations = self._client.get(NAMESPACES, namespace)["metadata"].get("annotations") or {}
        except NotFound:
            annotations = {}
        most = annotations.get(MAX_ATTEMPTS_ANNOTATION, "")
        return Limits(
            relaunch=annotations.get(RELAUNCH_ANNOTATION) != "false",
            max_attempts=int(most) if most.isdecimal() and len(most) < 5 else self._settings.max_attempts,
            name_policy=annotations.get(NAME_POLICY_ANNOTATION, ""),
        )


def _chosen(choice: plans.RelaunchOn | plans.Wait) -> Chosen:
    candidates = choice.candidates if isinstance(choice, plans.RelaunchOn) else ()
    return Chosen(
        nodes=tuple(each.node for each in candidates),
        hostnames=tuple(each.hostname for each in candidates),
        verdicts=choice.survey.verdicts(),
        counts=tuple(choice.survey.counts().items()),
        reason=choice.reason,
    )


def _with_verdicts(note: Note, survey: Survey) -> Note:
    return replace(note, verdicts=survey.verdicts(), counts=tuple(survey.counts().items()))


def _as_first_asked(pod: WatchedPod, previous: Relaunch) -> WatchedPod:
    """``pod`` with the placement its user asked for, before it was narrowed."""
    return replace(pod, placement=read_placement(Document(previous.manifest)["spec"]))


def _sooner(left: Again, right: Again | None) -> Again:
    if right is None:
        return left
    times = [each for each in (left.after, right.after) if each is not None]
    return Again(
        min(times, default=None),
        left.on_node_change or right.on_node_change,
        left.on_machine_change or right.on_machine_change,
    )


def _rfc3339() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
