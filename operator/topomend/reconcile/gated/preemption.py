"""Has pods of lower priority make room for a waiting pod: kube-scheduler preempts for no pod that is gated.

Where the scheduler's own preemption would free the pod's place, the pod is let go for the scheduler to preempt. Else
victims leave through the Eviction API, so PodDisruptionBudgets hold, once the API server would let all of them go and
the place is held. Owns for which pods this is tried, and how often. Leaves the choice of victims to
``decide/queue/victims``, the requests to ``running_pods`` and ``evictions``, the place to ``held_places``, and pods
that get room two at a time to ``together``. The right to evict is a ClusterRole of its own: without it nothing is
evicted.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice, takewhile
from math import inf
from typing import TypeVar

from topomend.base.bounded_dict import BoundedDict
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.feasibility import Diagnosis, ExcludedNodes, diagnose
from topomend.decide.diagnosis.filters import lacking_in_total
from topomend.decide.eligibility import why_opted_out
from topomend.decide.queue import victims
from topomend.decide.queue.lines import QueueLines, in_turns
from topomend.decide.queue.order import Reservation, reserved_numa_nodes
from topomend.kube.client import Client
from topomend.kube.resources import PRIORITY_CLASSES
from topomend.model.pods.pod import requests_of
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.announcer import Announcer
from topomend.reconcile.gated.evictions import Evictions
from topomend.reconcile.gated.held_places import HeldPlaces
from topomend.reconcile.gated.precedence import Precedence, Turn
from topomend.reconcile.gated.running_pods import RunningPods
from topomend.reconcile.gated.sweeps import Sweeps
from topomend.reconcile.gated.together import Pair, Together
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.optional_right import OptionalRight
from topomend.reconcile.placement.untried_pods import UntriedPods, may_preempt
from topomend.reconcile.store import Store
from topomend.replay.effort import Effort
from topomend.runtime.backoff import Exponential
from topomend.runtime.queues.token_bucket import FairTokenBucket

PATIENCE_SECONDS = 2.0
"""How long a pod waits first: a place may come free, and new states of nodes take a second to arrive."""

TOGETHER_SECONDS = 1.0
"""How long one waits that comes shortly after another: which of them goes first depends on both."""

RESTS = Exponential(30.0, 3600.0)
"""When a pod is tried again: victims take their grace period, and where none help, pods must end first. The rest
doubles after each attempt that evicted a pod and left this one waiting: whoever took its place may take the next."""

SLACK_SECONDS = 5.0
"""How much longer than until its next attempt a place is held for a pod: the attempt may hold it again."""

NEXT_SECONDS = 2.0
"""When a pod is tried again that may have a place already."""

SOON_SECONDS = 0.5
"""When a pod is tried again on nodes that are new to it, or once the scheduler has decided about another pod there."""

WAITS = Exponential(2.0, 10.0)
"""After how long nodes that have changed are looked at for a pod that found no place on any: ever longer."""

MAX_TRIED = 5
"""Pods at a time."""

NEGLECTED_SECONDS = 10.0
"""After how long without a turn a namespace has the last of them: pods that nothing can help, of higher priority or of
many namespaces, are due again for ever, and may be more than there are turns."""

MAX_OTHERS = 3
"""With how many other pods it is tried whether kube-scheduler makes room for two at once."""

APART_SECONDS = 60.0
"""For how long no pod goes together with one that could not be written."""

MAX_CHOICES = 10
"""How often victims are chosen in one attempt: a choice is void where the API server keeps one of them."""

WORK_SECONDS = 5.0
"""After how long in a row the other pods are left for the next time."""

ATTEMPTS_PER_SECOND, ATTEMPT_BURST = 2.0, 10
"""How often pods of nodes that are new to a waiting pod are listed; one namespace has half the burst."""

LISTS_PER_SECOND, LIST_BURST = 0.5, 20
"""How many LISTs are made for nodes that are looked at once more; one namespace has half the burst."""

CLASSES_SECONDS = 60.0
"""How long the lowest priority of the cluster is good."""

MAX_ENTRIES = 10_000

_RIGHT = {"verb": "list", "group": "scheduling.k8s.io", "version": "v1", "resource": "priorityclasses"}
"""What only the ClusterRole of preemption gives: the component defragment gives the right to evict too."""

_Decision = TypeVar("_Decision")

_log = logging.getLogger(__name__)


class Preemptor:
    """Makes room for the pods that wait in the snapshot. ``reservations`` is for any thread, the rest for one.

    ``excluded`` are the nodes that back off from a pod. ``let_go`` ungates a pod for the nodes of these names,
    and in no case for the others, which were looked at as well. ``is_gated_by_us`` says whether the operator gates the
    new pods of a pod's controller.
    ``count`` has the totals of the node of this name counted anew. ``untried`` is told whose turn has been.
    ``reserved`` are the reservations for pods that wait for others to end. ``was_late`` is whether kube-scheduler would
    have passed the pod over when it came.
    """

    def __init__(  # noqa: PLR0913  what it decides on and whom it hands a pod to
        self,
        client: Client,
        store: Store,
        announcer: Announcer,
        limits: NamespaceLimits,
        *,
        excluded: Callable[[WatchedPod], ExcludedNodes],
        let_go: Callable[[WatchedPod, Sequence[str], Sequence[str]], None],
        is_gated_by_us: Callable[[WatchedPod], bool],
        count: Callable[[str], None],
        untried: UntriedPods,
        reserved: Callable[[], Sequence[Reservation]] = tuple,
        was_late: Callable[[WatchedPod], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._store, self._announcer = client, store, announcer
        self._limits, self._excluded, self._let_go = limits, excluded, let_go
        self._count, self._untried = count, untried
        self._reserved, self._was_late, self._clock = reserved, was_late, clock
        self._attempting = FairTokenBucket(ATTEMPTS_PER_SECOND, ATTEMPT_BURST, clock)
        self._repeating = FairTokenBucket(LISTS_PER_SECOND, LIST_BURST, clock)
        self._sweeps, self._counted = Sweeps(clock), 0
        self._rests: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._attempts: BoundedDict[str, int] = BoundedDict(MAX_ENTRIES)
        self._waits: BoundedDict[str, int] = BoundedDict(MAX_ENTRIES)
        self._turns: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._apart: BoundedDict[str, float] = BoundedDict(MAX_ENTRIES)
        self._lines = QueueLines()
        self._lowest: tuple[float, int] | None = None
        self._faults = ObjectFaults(_log, "no pod is evicted for it", clock)
        self._places = HeldPlaces(client, store, self._faults, clock)
        self._running = RunningPods(client, self._places, clock)
        self._together = Together(store, self._places, budgeted=self._running.budgeted, let_go=let_go, clock=clock)
        self._right = OptionalRight(
            client, _RIGHT, log=_log, without="no pod is evicted for pods of higher priority", clock=clock
        )
        self._evictions = Evictions(
            client, self._right, has_opted_out=self._has_opted_out, is_gated_by_us=is_gated_by_us, clock=clock
        )
        self._precedence = Precedence(store, self._faults, self._running.of, self._evictions.among, clock)

    def reservations(self) -> Sequence[Reservation]:
        """The NUMA nodes that are held for pods for which others were evicted."""
        return self._places.reservations()

    def check(self) -> None:
        """Make room for the first of the pods that have waited for a while. Raises APIError."""
        if self._right.is_missing:
            self._untried.lowest = None
            return
        with self._right.used():
            self._places.give_up()
            self._together.check()
            self._running.forget_budgets()
            self._sweeps.note(self._store.snapshot)
            ends = self._clock() + WORK_SECONDS
            first = self._first_waiting()
            for number, pod in enumerate(takewhile(lambda _: self._clock() <= ends, first)):
                self._turns[pod.namespace] = self._clock()
                if pod.uid in self._together.waiting:
                    continue
                self._rest(pod)
                if self._has_opted_out(pod):
                    continue
                with self._faults.of(pod.namespace, pod.name), self._right.used():
                    self._preempt_for(pod, self._beside(pod, first[:number]), self._beside(pod, first[number + 1 :]))
                if self._right.is_missing:
                    return

    def _rest(self, pod: WatchedPod) -> None:
        self._try_again(pod, RESTS.seconds(self._attempts.get(pod.uid, 0) + 1))

    def _first_waiting(self) -> Sequence[WatchedPod]:
        """The first waiting pods whose priority is above that of some pods of the cluster.

        In one priority the namespaces take turns: no other waits until the pods of one are served. Those that have
        their turn come in kube-scheduler's order: in another one other pods are evicted, and often more of them.
        """
        snapshot = self._store.snapshot
        if not snapshot.gated:
            return ()
        lowest = self._lowest_priority()
        lines = self._lines.of(snapshot, self._clock())
        by_turn = in_turns((self._due_of(snapshot, line, lowest) for line in lines), MAX_TRIED)
        first = self._with_neglected(snapshot, sorted(by_turn, key=lambda pod: -pod.priority))
        if not any(self._waited(snapshot, pod) >= PATIENCE_SECONDS for pod in first):
            return ()
        return sorted(first, key=lambda pod: (-pod.priority, self._was_late(pod), pod.order))

    def _with_neglected(self, snapshot: Snapshot, due: Sequence[WatchedPod]) -> Sequence[WatchedPod]:
        """The first of ``due``, the last of them from the namespace that had no turn for longest, if that is long."""

        def neglected(pod: WatchedPod) -> float:
            return min(self._waited(snapshot, pod), self._clock() - self._turns.get(pod.namespace, -inf))

        longest = max(due[MAX_TRIED - 1 :], key=neglected, default=None)
        if longest is None or neglected(longest) < NEGLECTED_SECONDS:
            return due[:MAX_TRIED]
        return [*due[: MAX_TRIED - 1], longest]

    def _beside(self, pod: WatchedPod, others: Iterable[WatchedPod]) -> Sequence[WatchedPod]:
        """Those of the ``others`` that have the pod's priority and still wait for their turn."""
        snapshot = self._store.snapshot

        def waits(other: WatchedPod) -> bool:
            key = (other.namespace, other.name)
            is_served = self._places.has(other) or other.uid in self._together.waiting or key in snapshot.assumed
            return key in snapshot.gated and not is_served and not self._has_opted_out(other)

        return [other for other in others if other.priority == pod.priority and waits(other)]

    def _has_opted_out(self, pod: WatchedPod) -> bool:
        return bool(why_opted_out(pod, self._limits.limits(pod.namespace)))

    def _due_of(self, snapshot: Snapshot, line: Iterator[WatchedPod], lowest: int) -> Iterator[WatchedPod]:
        """The gated pods of a namespace that wait for a node and are due; their line is in the order of priority."""

        def is_tried(pod: WatchedPod) -> bool:
            key = (pod.namespace, pod.name)
            return key not in snapshot.assumed and self._is_patient(snapshot, pod)

        return filter(is_tried, takewhile(lambda pod: pod.priority > lowest, line))

    def _is_patient(self, snapshot: Snapshot, pod: WatchedPod) -> bool:
        """Whether the pod, which may preempt others, has waited and was not tried for a while."""
        is_due = self._waited(snapshot, pod) >= TOGETHER_SECONDS and self._rests.get(pod.uid, 0.0) <= self._clock()
        return is_due and may_preempt(pod) and pod.uid not in self._together.waiting

    def _waited(self, snapshot: Snapshot, pod: WatchedPod) -> float:
        """How many seconds the gated pod has waited; 0 for one that is gated no more."""
        now = self._clock()
        return now - snapshot.gated_since.get((pod.namespace, pod.name), now)

    def _lowest_priority(self) -> int:
        """The lowest priority that a pod of the cluster may have; pods without a class have 0."""
        now = self._clock()
        if self._lowest is None or self._lowest[0] + CLASSES_SECONDS <= now:
            values = self._client.read(PRIORITY_CLASSES, lambda content: (int(content["value"]),), cached=True).items
            self._lowest = now, min(0, *values, 0)
            self._untried.lowest = self._lowest[1]
        return self._lowest[1]

    def _within_shares(self, decide: Callable[[Snapshot, Effort], _Decision]) -> _Decision:
        """One decision about one pod: several together would spend the shares of healthy nodes."""
        return within_shares(self._store, lambda effort: decide(self._store.snapshot, effort))

    def _preempt_for(self, pod: WatchedPod, earlier: Sequence[WatchedPod], later: Sequence[WatchedPod]) -> None:
        diagnosis = self._diagnosed(pod)
        if diagnosis.candidates:
            self._try_again(pod, NEXT_SECONDS)
            return  # another pod's turn comes first
        undecided = victims.undecided_nodes(self._store.snapshot)
        reserved = reserved_numa_nodes(self._store.snapshot, pod, self._reserved())
        look = self._within_shares(lambda now, effort: self._sweeps.next(now, pod, {*undecided, *reserved}, effort))
        if not look.nodes:
            self._wait(pod, is_short=not undecided.isdisjoint(look.barred))
            return
        allowed = self._attempting if look.is_first else self._repeating
        if wait := allowed.take(pod.namespace):
            self._try_again(pod, wait)
            return
        lists = self._lists
        full = {status.node for status in diagnosis.rejected if status.is_full}
        try:
            self._preempt_on(Turn(pod, earlier, later, look, self._running.of(look.nodes)), full)
        finally:
            if not look.is_first:
                self._repeating.spend(pod.namespace, max(0, self._lists - lists - 1))

    @property
    def _lists(self) -> int:
        """How many LISTs were made so far."""
        return self._running.lists + self._evictions.lists + self._counted

    def _try_again(self, pod: WatchedPod, seconds: float) -> None:
        self._rests[pod.uid] = self._clock() + seconds

    def _wait(self, pod: WatchedPod, *, is_short: bool) -> None:
        """No node is left to look at for the pod now; ``is_short`` is that this may be otherwise in a moment."""
        if not is_short:
            self._untried.tried(pod)
        waits = self._waits[pod.uid] = self._waits.get(pod.uid, 0) + (not is_short)
        self._try_again(pod, SOON_SECONDS if is_short else WAITS.seconds(waits))

    def _preempt_on(self, turn: Turn, full: Collection[str]) -> None:
        """Have others make room for the pod on one of these nodes, or look at the next ones after a while.

        Those of ``full`` have too little left by the totals of the snapshot.
        """
        pod, look, running = turn.pod, turn.look, turn.running
        self._waits.pop(pod.uid, None)
        if self._counted_anew(pod, running, full):
            self._try_again(pod, NEXT_SECONDS)
            return
        if self._leave_together(turn, self._helpless(turn), in_budgets=True):
            return
        if self._leave_to_scheduler(turn, self._where_scheduler_preempts(pod, running)):
            return
        # Replay does not judge on which nodes other rules let it run.
        if not pod.scheduler_rules and self._evict_for(turn, self._evictions.among(pod, running)):
            return
        if self._leave_to_scheduler(turn, self._where_budgets_decide(pod, running)):
            return
        if self._leave_together(turn, self._others(pod), in_budgets=False):
            return
        leaving = {other.node for pods in running.by_node.values() for other in pods if other.deleting}
        self._sweeps.looked(pod, look, [name for name in look.nodes if name in leaving or name in running.awaited])
        if look.more:
            self._try_again(pod, SOON_SECONDS if look.is_first else NEXT_SECONDS)
        else:
            self._wait(pod, is_short=False)

    def _leave_to_scheduler(self, turn: Turn, there: victims.Running) -> bool:
        """Let the pod go for kube-scheduler to preempt on these nodes. Returns False without any."""
        if not there.by_node:
            return False
        choice = self._within_shares(lambda now, effort: victims.schedulers_choice(now, turn.pod, there, effort))
        if choice and self._comes_later(turn, choice):
            return True
        is_violation = choice is not None and victims.violates(choice, there.budgets)
        if is_violation and self._leave_together(turn, self._others(turn.pod), in_budgets=True):
            return True
        if choice and self._evict_less(turn, choice, there):
            return True
        self._let_go(turn.pod, tuple(there.by_node), [name for name in turn.look.nodes if name not in there.by_node])
        self._sweeps.forget(turn.pod)
        self._try_again(turn.pod, SOON_SECONDS)  # unless it is gone: one of the nodes may have changed meanwhile
        return True

    def _evict_less(self, turn: Turn, choice: victims.Preemption, there: victims.Running) -> bool:
        """Make room on a node that kube-scheduler does not choose, where less has to leave, and no budget forbids it.

        For example one whose pods started in the same second: whom the scheduler evicts of them is not known.
        """
        pod, running = turn.pod, turn.running
        nodes = [name for name in running.by_node if name != choice.node]
        if pod.scheduler_rules or not nodes or pod.uid in self._attempts:
            return False
        is_violation = victims.violates(choice, there.budgets)

        def is_less(own: victims.Preemption) -> bool:
            return bool(own.victims) and (is_violation or victims.is_better(own, choice))

        return self._evict_for(turn, self._evictions.among(pod, running.on(nodes)), is_less)

    def _helpless(self, turn: Turn) -> Iterator[WatchedPod]:
        """The pods of its priority that come after it, and for which nobody makes room if they are alone."""
        return (later for later in turn.later if self._may_go_with(turn.pod, later) and self._is_helpless(later, turn))

    def _is_helpless(self, pod: WatchedPod, turn: Turn) -> bool:
        with self._faults.of(pod.namespace, pod.name):
            return not self._makes_room_alone(pod, turn.running)
        return False

    def _makes_room_alone(self, pod: WatchedPod, running: victims.Running) -> bool:
        """Whether anybody makes room for the pod without another, on whatever node may admit it."""
        unseen = (name for name in self._store.snapshot.publications if name not in running.by_node)
        if any(self._may_run_on(pod, name) for name in unseen):
            return True
        there = self._within_shares(lambda now, effort: victims.where_it_may_run(now, pod, running, effort))
        if self._where_scheduler_preempts(pod, there).by_node or self._where_budgets_decide(pod, there).by_node:
            return True
        return not pod.scheduler_rules and self._choose_victims(pod, self._evictions.among(pod, there)) is not None

    def _may_run_on(self, pod: WatchedPod, node: str) -> bool:
        return self._within_shares(lambda now, effort: victims.would_admit_empty(now, pod, node, effort))

    def _leave_together(self, turn: Turn, others: Iterable[WatchedPod], *, in_budgets: bool) -> bool:
        """Let the pod or one of the ``others`` go where kube-scheduler makes room for both."""
        if turn.look.is_first and turn.look.more:
            return False
        first = nsmallest(MAX_OTHERS, others, key=lambda other: other.order)
        others = [other for other in first if not self._has_opted_out(other) and self._needs_room(other)]
        pair = self._together.find(turn, others, in_budgets=in_budgets)
        if pair is None:
            return False
        if self._comes_later(turn, pair.choice):
            return True
        if not self._have_left(pair, turn):
            return False
        for pod in (pair.pod, pair.held):
            self._sweeps.forget(pod)
            self._try_again(pod, SOON_SECONDS)  # unless it is gone, or waits for the other one to come
        return True

    def _have_left(self, pair: Pair, turn: Turn) -> bool:
        """Returns False where the other pod cannot be written, or has changed: it is not to keep this one.

        Then it is left out for a moment, or for a while.
        """
        other = pair.held if pair.pod.uid == turn.pod.uid else pair.pod
        seconds = APART_SECONDS
        with self._faults.of(other.namespace, other.name):
            if self._together.leave(pair, turn.look):
                return True
            seconds = SOON_SECONDS
        self._apart[other.uid] = self._clock() + seconds
        return False

    def _others(self, pod: WatchedPod) -> Iterator[WatchedPod]:
        """The first other pods of each namespace that may go with this one."""
        for line in self._lines.of(self._store.snapshot, self._clock()):
            no_less = takewhile(lambda other: other.priority >= pod.priority, line)
            yield from islice((other for other in no_less if self._may_go_with(pod, other)), MAX_OTHERS)

    def _may_go_with(self, pod: WatchedPod, other: WatchedPod) -> bool:
        """Whether the other one has this pod's priority and waits too; not if pods have been evicted for it lately."""
        if other.priority != pod.priority or other.uid == pod.uid or self._places.has(other):
            return False
        now = self._clock()
        if other.uid in self._attempts and self._rests.get(other.uid, 0.0) > now:
            return False
        has_waited = self._waited(self._store.snapshot, other) >= TOGETHER_SECONDS
        return has_waited and may_preempt(other) and self._apart.get(other.uid, 0.0) <= now

    def _comes_later(self, turn: Turn, choice: victims.Preemption) -> bool:
        seconds = self._precedence.seconds(turn, choice)
        if seconds:
            self._try_again(turn.pod, seconds)
        return bool(seconds)

    def _counted_anew(self, pod: WatchedPod, running: victims.Running, full: Collection[str]) -> bool:
        """Whether a node of ``full`` leaves enough after all, once its pods are counted anew: an end was not seen.

        Nodes are counted whose pods, as far as they can be read, leave enough. Nobody need leave where one does.
        """
        doubtful = running.on(full)
        for name in self._within_shares(lambda now, effort: victims.where_enough_is_left(now, pod, doubtful, effort)):
            self._counted += 1
            self._count(name)
            node = self._store.snapshot.nodes.get(name)
            if node and not lacking_in_total(node, requests_of(pod.pod)):
                return True
        return False

    def _where_scheduler_preempts(self, pod: WatchedPod, running: victims.Running) -> victims.Running:
        """The nodes where that makes room for the pod. Budgets, which spare pods, are read where there are any."""
        names = self._within_shares(lambda now, effort: victims.where_scheduler_preempts(now, pod, running, effort))
        if not names:
            return victims.Running({})
        by_budgets = self._within_shares(lambda now, effort: victims.where_budgets_decide(now, pod, running, effort))
        there = self._with_budgets(pod, running, {*names, *by_budgets})
        return self._by_budgets(pod, there) if there.budgets else there.on(names)

    def _where_budgets_decide(self, pod: WatchedPod, running: victims.Running) -> victims.Running:
        """The nodes where that makes room for the pod by what budgets spare, and would not without them."""
        names = self._within_shares(lambda now, effort: victims.where_budgets_decide(now, pod, running, effort))
        there = self._with_budgets(pod, running, names)
        return self._by_budgets(pod, there) if there.budgets else victims.Running({})

    def _by_budgets(self, pod: WatchedPod, running: victims.Running) -> victims.Running:
        names = self._within_shares(lambda now, effort: victims.where_scheduler_preempts(now, pod, running, effort))
        return running.on(names)

    def _with_budgets(self, pod: WatchedPod, running: victims.Running, names: Collection[str]) -> victims.Running:
        return self._running.budgeted(pod, running.on(names))

    def _choose_victims(self, pod: WatchedPod, running: victims.Running) -> victims.Preemption | None:
        return self._within_shares(lambda now, effort: victims.choose_victims(now, pod, running, effort))

    def _evict_for(
        self, turn: Turn, running: victims.Running, may: Callable[[victims.Preemption], bool] = lambda _: True
    ) -> bool:
        """Returns whether there is a place for which pods ``may`` be evicted, or that others are about to leave."""
        pod = turn.pod
        for _ in range(MAX_CHOICES):
            chosen = self._choose_victims(pod, running)
            if chosen is None or not may(chosen):
                return False
            kept = self._evictions.kept(chosen, pod.priority)
            if not kept:
                if not self._comes_later(turn, chosen):
                    self._evict_all(pod, chosen)
                    self._sweeps.forget(pod)
                    self._untried.tried(pod)
                return True
            running = replace(running, staying={*running.staying, *kept})
        return False  # those that are kept are known the next time

    def _evict_all(self, pod: WatchedPod, chosen: victims.Preemption) -> None:
        """Evict the victims once the place is held. Where one is kept after all, the pod is tried again."""
        attempts = self._attempts.get(pod.uid, 0) + bool(chosen.victims)
        seconds = RESTS.seconds(attempts + 1)
        self._try_again(pod, seconds)
        if not self._places.hold(pod, chosen, self._clock() + seconds + SLACK_SECONDS):
            self._try_again(pod, NEXT_SECONDS)  # it has changed: an earlier nomination was taken back, for example
            return
        if chosen.victims and not self._needs_room(pod):
            self._places.give_up_for(pod)
            self._try_again(pod, NEXT_SECONDS)
            return
        self._attempts[pod.uid] = attempts
        self._evictions.remember(pod, chosen.victims)
        evicted = list(
            takewhile(lambda victim: self._needs_room(pod) and self._evictions.evict(victim), chosen.victims)
        )
        for victim in evicted:
            name = f"{victim.namespace}/{victim.name}"
            _log.info("%s was evicted from %s for %s/%s", name, chosen.node, pod.namespace, pod.name)
        if evicted:
            self._announcer.preempted(evicted, pod, chosen.node, seconds)
        elif chosen.victims:
            self._try_again(pod, NEXT_SECONDS)

    def _needs_room(self, pod: WatchedPod) -> bool:
        """Whether the pod still waits and no node admits it: one may have come free since the victims were chosen.

        A worker assumes the pod on a node before it ungates it.
        """
        snapshot, key = self._store.snapshot, (pod.namespace, pod.name)
        if key not in snapshot.gated or key in snapshot.assumed:
            return False
        return not self._diagnosed(pod).candidates

    def _diagnosed(self, pod: WatchedPod) -> Diagnosis:
        surveys, excluded = self._store.surveys, self._excluded(pod)
        return self._within_shares(
            lambda now, effort: diagnose(now, pod.pod, pod.placement, None, excluded, surveys=surveys, effort=effort)
        )
