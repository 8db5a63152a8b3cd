"""Which few pods are to be moved, so that less of what is free is unusable for the pods that typically come.

A move ends one pod and has its controller's next one run elsewhere. Its gain is the fall of the pool's number
(``fragmentation.overall``). The best move is taken first, and the next one is looked for in the cluster as it then is:
with the moved pod where topomend itself places it, and with those pods running that waited for the room.

A pod may come back to the node that it has left, which has room for it now, and topomend lets each go for several
nodes, of which kube-scheduler chooses one. So some nodes are cordoned while a pod is moved: its own, and those on which
it would bring less than the threshold. A move counts only if each node that is then left to the scheduler admits the
pod, by replay and totals, and brings enough. Owns the simulation. Leaves which pods may be moved at all to ``movable``,
and the evictions to whoever carries them out, one after another: each pod has its place before the next one is evicted.
If it got another one than was told, the moves after it are to be looked for again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from topomend.cache.snapshot import Snapshot
from topomend.decide.defragment.moves import (
    Defragmented,
    DefragmentedPool,
    Limits,
    Movable,
    Move,
    Pods,
    Then,
    Waiting,
)
from topomend.decide.defragment.pool import Figures, Pool, pools_called
from topomend.decide.defragment.world import place_of, settled, with_cordoned, with_pod, without
from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.diagnosis.filters import filter_node
from topomend.decide.diagnosis.node_status import NodeStatus, Question, kind_of, question_about
from topomend.decide.diagnosis.survey import Surveys
from topomend.decide.plan import MAX_NAMED_NODES
from topomend.decide.pools.pools import KindsOf
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of
from topomend.model.pods.scheduling import Placement
from topomend.replay.admission import admit, release
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.admission import PodShape

MOST_KINDS = 96
"""Of how many kinds pods are looked at. Each node's answer to each of them is remembered."""

MOST_WORK = 20_000
"""How many pods are looked at, those of nodes first of which most is unusable: a bound of some seconds. Where typical
pods take a whole admission each, or each pod is of a kind of its own, they are fewer (``pool.REPLAYED_WORK``)."""

ANSWERS_OF_WORK = 8
"""How many nodes answer about a pod in the time in which one is asked about all typical pods."""

MOST_TRIED = 50
"""For how many moves in a row a proof is tried, the best first."""

MOST_CORDONED = 4
"""How many nodes are cordoned at most for one move, the pod's own among them."""

MOST_WAITING = 200
"""How many of the pods that wait are asked about after each move, the first in the queue."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def defragment(  # noqa: PLR0913  what the moves depend on
    snapshot: Snapshot,
    kinds_of: KindsOf,
    pods: Pods,
    limits: Limits,
    *,
    names: Collection[str] = (),
    effort: Effort = UNLIMITED,
) -> Defragmented:
    """The moves in the pools of these ``names``, by default of all. Raises Overspent, TurnOver.

    Each node of the snapshot has what is used of its totals; where that is not known, no pod is moved to it.
    """
    search = _Search(snapshot, kinds_of, pods, names, effort)
    begun = [pool.outcome() for pool in search.pools]
    moves: list[Move] = []
    while len(moves) < limits.moves and (move := search.next_move(limits.threshold)):
        moves.append(move)
    ended = [pool.outcome() for pool in search.pools]
    found = tuple(_together(before, after) for before, after in zip(begun, ended, strict=True))
    return Defragmented(tuple(moves), found, search.movable, search.asked, search.unproven)


def _together(before: DefragmentedPool, after: DefragmentedPool) -> DefragmentedPool:
    pairs = zip(before.typical, after.typical, strict=True)
    typical = tuple((kind, now, then) for (kind, now, _), (_, then, _) in pairs)
    return replace(before, after=after.after, typical=typical)


@dataclass(frozen=True, slots=True)
class _Mover:
    """A pod that may be moved: ``successor`` is its controller's next pod, which every node is asked about."""

    pod: Movable
    successor: Pod
    question: Question
    pool: Pool


class _Remembered(Generic[_Key, _Value]):
    """What was made of nodes' states, each as long as the node stays as it is."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[NodeState, _Value]] = {}

    def of(self, key: _Key, state: NodeState, make: Callable[[NodeState], _Value]) -> _Value:
        """What ``make`` returns for the state, called once for this ``key`` and state."""
        known = self._known.get(key)
        if known is None or known[0] is not state:
            known = self._known[key] = state, make(state)
        return known[1]


@dataclass(frozen=True, slots=True)
class _Proven:
    """Where topomend places a moved pod while these nodes are cordoned, and where it may come to instead."""

    node: str
    others: tuple[str, ...]
    cordoned: tuple[str, ...]


class _Search:
    """The moves one after another. ``world`` is the cluster after those found so far."""

    def __init__(
        self, snapshot: Snapshot, kinds_of: KindsOf, pods: Pods, names: Collection[str], effort: Effort
    ) -> None:
        self._effort, self._surveys = effort, Surveys(MOST_KINDS)
        self.world = settled(snapshot, effort)
        self.pools = list(pools_called(self.world, kinds_of, names, effort))
        self._unsettled, self._ending = pods.unsettled, pods.ending
        self._budgets = [(budget.pods, budget.allowed) for budget in pods.budgets]
        candidates = list(self._candidates(pods.movable))
        self.movable = len(candidates)
        candidates.sort(key=lambda each: -each[1].unusable(each[0].node))
        chosen = _affordable(candidates, len(self.world.nodes))
        self._movers_left = [self._mover(pod, pool) for pod, pool in chosen]
        self.asked = len(self._movers_left)
        self._unproven: set[str] = set()
        self._waiting = [each for each in pods.waiting[:MOST_WAITING] if not self._fits_now(each)]
        self._first_of_kinds: Sequence[tuple[Waiting, Question]] | None = None
        self._emptied = _Remembered[str, NodeState]()
        self._reserved: dict[tuple[str, int], bool] = {}
        self._lefts = _Remembered[str, Figures]()
        self._figures = _Remembered[tuple[PodShape, str], Figures]()

    @property
    def unproven(self) -> int:
        """How many pods would be moved if more were certain."""
        return len(self._unproven)

    def _candidates(self, movable: Iterable[Movable]) -> Iterable[tuple[Movable, Pool]]:
        """Those on a node that counts, and that hold something there."""
        pool_of = {node: pool for pool in self.pools for node in pool.figures}
        for pod in movable:
            pool = pool_of.get(pod.node)
            if pool is None or pod.node in self._unsettled:
                continue
            if self.world.publications[pod.node].state.holds(pod.pod.namespace, pod.pod.name):
                yield pod, pool

    def _mover(self, pod: Movable, pool: Pool) -> _Mover:
        successor = replace(pod.pod, name=f"{pod.pod.name}-moved", uid="")
        return _Mover(pod, successor, question_about(successor, pod.placement, self._effort), pool)

    def _begin_with_pod(self) -> None:
        """Each node has its whole share of time again. Raises TurnOver."""
        self._effort.end_turn()
        self._effort.next_pod()

    def _fits_now(self, waiting: Waiting) -> bool:
        """Whether a node admits the pod without any move: then it waits for something else."""
        return bool(self._diagnosed(self.world, waiting.pod, waiting.placement))

    def _diagnosed(self, world: Snapshot, pod: Pod, placement: Placement) -> Sequence[NodeStatus]:
        """The nodes that admit the pod, best first; none where the scheduler chooses among all."""
        self._begin_with_pod()
        diagnosis = diagnose(world, pod, placement, surveys=self._surveys, effort=self._effort)
        return () if diagnosis.any_node_will_do else diagnosis.candidates

    def next_move(self, threshold: float) -> Move | None:
        """The best move of those that are proven; None where none has the number fall by ``threshold``."""
        for mover in self._ranked(threshold)[:MOST_TRIED]:
            proven = self._proven(mover, threshold)
            move = self._carried_out(mover, proven) if proven else None
            if move:
                self._unproven.discard(mover.pod.pod.uid)
                return move
            self._unproven.add(mover.pod.pod.uid)
        return None

    def _ranked(self, threshold: float) -> Sequence[_Mover]:
        """The pods whose move has the number fall by ``threshold`` at least, the best first.

        Of equal ones those of lower priority, then those that ask for less.
        """
        first_two: dict[PodShape, Sequence[NodeStatus]] = {}
        gains = [(self._gain(mover, first_two), mover) for mover in self._movers_left if self._may_leave(mover)]
        found = [(gain, mover) for gain, mover in gains if gain > 0 and gain >= mover.pool.least(threshold)]
        found.sort(key=lambda each: (-round(each[0], 12), *_least_missed(each[1].pod)))
        return [mover for _, mover in found]

    def _may_leave(self, mover: _Mover) -> bool:
        """Whether every budget lets one more of its pods go."""
        return all(allowed > 0 for pods, allowed in self._budgets if mover.pod.pod.uid in pods)

    def _gain(self, mover: _Mover, first_two: dict[PodShape, Sequence[NodeStatus]]) -> float:
        """By how much the number falls on the best other node; 0 where that is not in reach."""
        kind = mover.question.kind
        if kind not in first_two:
            first_two[kind] = self._diagnosed(self.world, mover.successor, mover.pod.placement)[:2]
        others = [status.node for status in first_two[kind] if status.node != mover.pod.node]
        return self._gain_on(mover, others[0]) if others else 0.0

    def _gain_on(self, mover: _Mover, node: str) -> float:
        """By how much the number falls if the pod comes to this node, and nobody else comes.

        0 for a node that is not to be counted on.
        """
        if node not in mover.pool.figures or node in self._unsettled or self._may_be_reserved(mover, node):
            return 0.0
        self._begin_with_pod()
        after = mover.pool.number_with({mover.pod.node: self._left(mover), node: self._figures_with(mover, node)})
        before = mover.pool.number
        return 0.0 if before is None or after is None else before - after

    def _may_be_reserved(self, mover: _Mover, node: str) -> bool:
        """Whether the node would admit a pod that goes first, once those have ended that are expected to.

        Then NUMA nodes may be reserved for it there (``decide/queue/order``). Remembered until the next move.
        """
        key = node, mover.pod.priority
        if key not in self._reserved:
            self._reserved[key] = self._admits_earlier(*key)
        return self._reserved[key]

    def _admits_earlier(self, node: str, priority: int) -> bool:
        there = self.world.nodes[node]
        may_go = (
            question
            for each, question in self._first()
            if each.priority >= priority and not filter_node(there, question.placement, question.requests)
        )
        return any(self._admits_once_ended(node, question) for question in may_go)

    def _admits_once_ended(self, node: str, question: Question) -> bool:
        self._begin_with_pod()
        return question.fit.admits(self._without_ending(node))

    def _first(self) -> Iterable[tuple[Waiting, Question]]:
        """Of each kind of pods that wait the first, with the question about it."""
        if self._first_of_kinds is None:
            by_kind: dict[PodShape, tuple[Waiting, Question]] = {}
            for each in self._waiting:
                question = question_about(each.pod, each.placement, self._effort)
                by_kind.setdefault(question.kind, (each, question))
            self._first_of_kinds = list(by_kind.values())
        return self._first_of_kinds

    def _without_ending(self, node: str) -> NodeState:
        """The node once those have ended that are expected to."""

        def emptied(state: NodeState) -> NodeState:
            left = state
            for pod in state.pods:
                if (pod.namespace, pod.name) in self._ending:
                    left = release(left, pod.namespace, pod.name)
            return left

        return self._emptied.of(node, self.world.publications[node].state, emptied)

    def _left(self, mover: _Mover) -> Figures:
        """The figures of the pod's node once that has ended."""
        pod, state = mover.pod.pod, self.world.publications[mover.pod.node].state
        return self._lefts.of(pod.uid, state, lambda state: mover.pool.asked(release(state, pod.namespace, pod.name)))

    def _figures_with(self, mover: _Mover, node: str) -> Figures:
        """The figures of the node with a pod of this kind."""
        key, state = (mover.question.kind, node), self.world.publications[node].state
        return self._figures.of(
            key, state, lambda state: mover.pool.asked(admit(state, mover.successor, self._effort)[1])
        )

    # The proof

    def _proven(self, mover: _Mover, threshold: float) -> _Proven | None:
        """The nodes of a move that brings enough on each node which the scheduler may choose; None without one."""
        cordoned, least = [mover.pod.node], mover.pool.least(threshold)
        while len(cordoned) <= MOST_CORDONED:
            world = with_cordoned(self.world, cordoned)
            candidates = self._diagnosed(world, mover.successor, mover.pod.placement)[:MAX_NAMED_NODES]
            named = [status.node for status in candidates]
            gains = {node: self._gain_on(mover, node) for node in named}
            wrong = [node for node, gain in gains.items() if gain <= 0 or gain < least]
            if not named or wrong[:1] == named[:1] or not set(named).isdisjoint(cordoned):
                return None
            if not wrong:
                return _Proven(named[0], tuple(named[1:]), tuple(cordoned))
            cordoned += wrong
        return None

    def _carried_out(self, mover: _Mover, proven: _Proven) -> Move | None:
        """Carry the move out in the simulation, and have those run that wait; None where totals are not known."""
        origin, target = mover.pod.node, proven.node
        before, where = mover.pool.number, place_of(self.world, origin, mover.pod.pod)
        alone = with_pod(without(self.world, origin, mover.pod.pod), target, mover.successor, self._effort)
        if alone is None:
            return None
        place = place_of(alone, target, mover.successor)
        self._adopt(alone)
        after = mover.pool.number
        world, then = self._let_in(alone)
        self._adopt(world)
        self._forget(mover, then)
        numbers = before or 0.0, after or 0.0  # both are known: a gain is
        return Move(mover.pod, mover.pool.name, where, place, *numbers, proven.cordoned, proven.others, then)

    def _let_in(self, world: Snapshot) -> tuple[Snapshot, tuple[Then, ...]]:
        """The cluster in which those run that a node admits now, in their order."""
        then: list[Then] = []
        refused: set[PodShape] = set()
        for each in self._waiting:
            kind = question_about(each.pod, each.placement, self._effort).kind
            if kind in refused or not each.certain:
                continue
            candidates = self._diagnosed(world, each.pod, each.placement)
            after = with_pod(world, candidates[0].node, each.pod, self._effort) if candidates else None
            if after is None:
                refused.add(kind)
                continue
            world = after
            then.append(Then(each.pod, place_of(world, candidates[0].node, each.pod)))
        return world, tuple(then)

    def _adopt(self, world: Snapshot) -> None:
        """Take ``world`` as the cluster, and ask the nodes that have changed."""
        before, self.world = self.world, world
        for pool in self.pools:
            now = {node: world.publications[node] for node in pool.figures}
            changed = {name: each.state for name, each in now.items() if each is not before.publications[name]}
            if changed:
                pool.renew(changed)

    def _forget(self, mover: _Mover, then: Iterable[Then]) -> None:
        """The pod is not moved again, its budgets let one less go, and those that run do not wait any more."""
        run, uid = {id(each.pod) for each in then}, mover.pod.pod.uid
        self._waiting = [each for each in self._waiting if id(each.pod) not in run]
        self._first_of_kinds = None
        self._reserved.clear()
        self._movers_left = [each for each in self._movers_left if each is not mover]
        self._budgets = [(pods, allowed - (uid in pods)) for pods, allowed in self._budgets]


def _affordable(candidates: Iterable[tuple[Movable, Pool]], nodes: int) -> Iterator[tuple[Movable, Pool]]:
    """Those of them, the first before others, that it is MOST_WORK to look at. About each kind all nodes are asked."""
    left, kinds = MOST_WORK, set[PodShape]()
    for pod, pool in candidates:
        kind = kind_of(pod.pod, pod.placement)
        is_new = kind not in kinds
        work = pool.work + is_new * (nodes // ANSWERS_OF_WORK)
        if work > left or (is_new and len(kinds) == MOST_KINDS):
            continue
        left -= work
        kinds.add(kind)
        yield pod, pool


def _least_missed(pod: Movable) -> tuple[int, int, str, str]:
    return pod.priority, requests_of(pod.pod).get("cpu", 0), pod.pod.namespace, pod.pod.name
