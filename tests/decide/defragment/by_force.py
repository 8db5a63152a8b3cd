"""The moves by brute force: every pod is carried to every node, and the rules are asked one after another.

Nothing is remembered between two questions, and numbers are those of ``kubectl numa show --summary``.
"""

from dataclasses import replace

from tests.decide.defragment.random_cluster import RandomCluster, named, number_of, with_pod, without_pod

from topomend.cache.snapshot import Snapshot
from topomend.decide.defragment.moves import Movable, Move, Waiting
from topomend.decide.diagnosis.filters import filter_node
from topomend.model.pods.pod import Pod, requests_of
from topomend.replay.admission import admit, release

Told = tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]
"""A move: its pod's uid, the target, the nodes cordoned, the other nodes, and who then runs where."""


def told(move: Move) -> Told:
    """The same of a move that was found."""
    then = tuple((each.pod.name, each.place.node) for each in move.then)
    return move.pod.pod.uid, move.target.node, move.cordoned, move.others, then


class ByForce:
    """The moves one after another, with at most ``most_cordoned`` nodes cordoned for each."""

    def __init__(self, random: RandomCluster, most_cordoned: int) -> None:
        self._random, self._most_cordoned = random, most_cordoned
        self._snapshot, self._movable = random.snapshot, list(random.movable)
        self._allowed = [budget.allowed for budget in random.budgets]
        self._waiting = [each for each in random.waiting if not named(self._snapshot, each.pod, each.placement)]
        self.unproven: set[str] = set()

    def moves(self) -> list[Told]:
        """All of them."""
        found: list[Told] = []
        while len(found) < self._random.limits.moves:
            move = self._next()
            if move is None:
                break
            found.append(move)
        return found

    def _next(self) -> Told | None:
        """The best that is proven."""
        ranked = []
        for movable in self._movable:
            others = [node for node in self._named(movable) if node != movable.node]
            gain = self._gain(movable, others[0]) if others and self._may_leave(movable) else 0.0
            if self._is_enough(gain):
                asked = requests_of(movable.pod).get("cpu", 0)
                ranked.append((-round(gain, 12), movable.priority, asked, movable.pod.name, movable))
        for *_, movable in sorted(ranked, key=lambda each: each[:4]):
            if move := self._carried_out(movable):
                self.unproven.discard(movable.pod.uid)
                return move
            self.unproven.add(movable.pod.uid)
        return None

    def _may_leave(self, movable: Movable) -> bool:
        budgets = zip(self._random.budgets, self._allowed, strict=True)
        return movable.node not in self._random.unsettled and all(
            allowed > 0 for budget, allowed in budgets if movable.pod.uid in budget.pods
        )

    def _named(self, movable: Movable, cordoned: tuple[str, ...] = ()) -> list[str]:
        return named(self._snapshot, _next_of(movable), movable.placement, cordoned)

    def _is_enough(self, gain: float) -> bool:
        return gain > 0 and gain >= self._random.least

    def _gain(self, movable: Movable, node: str) -> float:
        """By how much the number falls; 0 where the node is not to be counted on."""
        if node in self._random.unsettled or any(
            each.priority >= movable.priority and self._may_get(each, node) for each in self._waiting
        ):
            return 0.0
        before = number_of(self._snapshot, self._random.typical)
        after = number_of(self._after(movable, node), self._random.typical)
        return 0.0 if before is None or after is None else before - after

    def _after(self, movable: Movable, node: str) -> Snapshot:
        gone = without_pod(self._snapshot, movable.node, movable.pod)
        return with_pod(gone, node, _next_of(movable), movable.placement)

    def _may_get(self, waiting: Waiting, node: str) -> bool:
        """Whether the pod could be there once those have ended that are expected to."""
        state = self._snapshot.publications[node].state
        for namespace, name in self._random.ending:
            state = release(state, namespace, name)
        filtered = filter_node(self._snapshot.nodes[node], waiting.placement, requests_of(waiting.pod))
        return not filtered and admit(state, waiting.pod)[0].admitted

    def _carried_out(self, movable: Movable) -> Told | None:
        """The move with as few nodes cordoned as it takes; None without a proof."""
        cordoned: tuple[str, ...] = (movable.node,)
        while True:
            nodes = self._named(movable, cordoned)
            wrong = tuple(node for node in nodes if not self._is_enough(self._gain(movable, node)))
            if len(cordoned) > self._most_cordoned or not nodes or nodes[0] in wrong or {*nodes} & {*cordoned}:
                return None
            if not wrong:
                break
            cordoned += wrong
        target = nodes[0]
        if self._snapshot.nodes[target].used is None:
            return None
        self._snapshot = self._after(movable, target)
        self._movable.remove(movable)
        budgets = zip(self._random.budgets, self._allowed, strict=True)
        self._allowed = [allowed - (movable.pod.uid in budget.pods) for budget, allowed in budgets]
        return movable.pod.uid, target, cordoned, tuple(nodes[1:]), self._let_in()

    def _let_in(self) -> tuple[tuple[str, str], ...]:
        """Those that wait and run now, with their nodes."""
        run: list[tuple[str, str]] = []
        for each in [each for each in self._waiting if each.certain]:
            nodes = named(self._snapshot, each.pod, each.placement)
            if nodes and self._snapshot.nodes[nodes[0]].used is not None:
                self._snapshot = with_pod(self._snapshot, nodes[0], each.pod, each.placement)
                self._waiting.remove(each)
                run.append((each.pod.name, nodes[0]))
        return tuple(run)


def _next_of(movable: Movable) -> Pod:
    return replace(movable.pod, name=f"{movable.pod.name}-next", uid="next")
