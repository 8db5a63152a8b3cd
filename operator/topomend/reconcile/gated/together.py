"""Two pods for which kube-scheduler evicts the right pods only at once, because it counts totals.

For each of them alone so many pods stay that no NUMA node is large enough, or more leave than a budget allows. So the
place of one is held first: it stays gated, and is nominated. The scheduler keeps its totals free while it makes room
for the other one, which is let go, and does not bind that before both have room in total. The first is ungated like any
pod whose node has come free. Owns which two, and that one waits for the other. Leaves whom the scheduler evicts to
``decide/queue/victims``, and what holds a place to ``held_places``.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from topomend.cache.snapshot import Snapshot
from topomend.decide.queue import victims
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.held_places import HeldPlaces
from topomend.reconcile.gated.precedence import Turn
from topomend.reconcile.gated.sweeps import Look
from topomend.reconcile.nodes.replay_shares import within_shares
from topomend.reconcile.store import Store
from topomend.replay.effort import Effort

HELD_SECONDS = 35.0
"""How long the place is held beside the other pod's, and after that has come or found no node."""

_Decision = TypeVar("_Decision")


@dataclass(frozen=True, slots=True)
class Pair:
    """The pod to let go, the one whose place is ``held`` beside it, and whom kube-scheduler evicts for both."""

    pod: WatchedPod
    held: WatchedPod
    choice: victims.Preemption


class Together:
    """For one thread. ``budgeted`` adds the budgets of a pod's possible victims; ``let_go`` is as in ``preemption``."""

    def __init__(
        self,
        store: Store,
        places: HeldPlaces,
        *,
        budgeted: Callable[[WatchedPod, victims.Running], victims.Running],
        let_go: Callable[[WatchedPod, Sequence[str], Sequence[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._places, self._clock = store, places, clock
        self._budgeted, self._let_go = budgeted, let_go
        self._waiting: dict[str, tuple[WatchedPod, str]] = {}

    @property
    def waiting(self) -> Collection[str]:
        """The uids of the pods that wait for others to come beside them: nothing else is tried for them."""
        return self._waiting.keys()

    def check(self) -> None:
        """Hold places until the pods beside them have come, or found no node."""
        snapshot = self._store.snapshot
        undecided = victims.undecided_nodes(snapshot)
        for uid, (pod, node) in tuple(self._waiting.items()):
            gated = snapshot.gated.get((pod.namespace, pod.name))
            if node not in undecided or gated is None or gated.uid != uid:
                del self._waiting[uid]
            else:
                self._places.extend(pod, self._clock() + HELD_SECONDS)

    def find(self, turn: Turn, others: Collection[WatchedPod], *, in_budgets: bool) -> Pair | None:
        """The pod and one of ``others``, if kube-scheduler makes room for both.

        The ``others`` have its priority, and no node admits them. ``in_budgets`` is that all budgets have to allow it.
        Raises APIError.
        """
        found = (self._choose(pod, held, turn.running, in_budgets) for pod, held in _pairs(turn.pod, others))
        return next((pair for pair in found if pair), None)

    def leave(self, pair: Pair, look: Look) -> bool:
        """Let one go where kube-scheduler makes room for both, once the place of the other is held.

        Returns False where none can be held, because that pod has changed. Raises APIError.
        """
        pod, held, node = pair.pod, pair.held, pair.choice.node
        if not self._places.hold(held, replace(pair.choice, victims=()), self._clock() + HELD_SECONDS):
            return False
        try:
            self._let_go(pod, (node,), [name for name in look.nodes if name != node])
        finally:
            if (pod.namespace, pod.name) in self._store.snapshot.assumed:
                self._waiting[held.uid] = held, node
            else:
                self._places.give_up_for(held)
        return True

    def _choose(self, pod: WatchedPod, held: WatchedPod, running: victims.Running, in_budgets: bool) -> Pair | None:
        there = self._where(pod, held, running)
        beside = victims.with_awaited(there, held)
        choice = self._within_shares(lambda now, effort: victims.schedulers_choice(now, pod, beside, effort))
        if choice is None or (in_budgets and victims.violates(choice, there.budgets)):
            return None
        return Pair(pod, held, choice)

    def _where(self, pod: WatchedPod, held: WatchedPod, running: victims.Running) -> victims.Running:
        """The nodes where the scheduler makes room for both. Budgets are read where there are any."""
        there = self._budgeted(pod, self._only_where(pod, held, running))
        return self._only_where(pod, held, there) if there.budgets else there

    def _only_where(self, pod: WatchedPod, held: WatchedPod, running: victims.Running) -> victims.Running:
        names = self._within_shares(
            lambda now, effort: victims.where_scheduler_makes_room_for_both(now, pod, held, running, effort)
        )
        return running.on(names)

    def _within_shares(self, decide: Callable[[Snapshot, Effort], _Decision]) -> _Decision:
        return within_shares(self._store, lambda effort: decide(self._store.snapshot, effort))


def _pairs(pod: WatchedPod, others: Collection[WatchedPod]) -> Iterator[tuple[WatchedPod, WatchedPod]]:
    """The pod to let go and the one whose place is held.

    A place is held for none that the scheduler may send elsewhere: replay does not judge its other rules. One of which
    nobody knows where its volumes are is narrowed to no node.
    """
    pairs = (pair for other in others for pair in ((pod, other), (other, pod)))
    return (pair for pair in pairs if pair[0].placement.volumes is not None and not pair[1].scheduler_rules)
