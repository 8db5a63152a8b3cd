"""What the nodes of one pool answer to its typical pods while pods are moved, and the pool's number.

Owns asking the nodes that have changed. Leaves the number itself to ``decide.fragmentation``.
"""

from collections.abc import Collection, Iterable, Mapping

from topomend.cache.snapshot import Snapshot
from topomend.decide.defragment.moves import DefragmentedPool
from topomend.decide.pools.fragmentation import Fragmented, NodeAnswers, Questions, counts, fragmentation_of, overall
from topomend.decide.pools.pools import KindsOf
from topomend.decide.pools.typical_pods import Mix, mix_of
from topomend.model.nodes.node_pool import NO_POOL, pools_of
from topomend.model.nodes.node_state import NodeState
from topomend.replay.effort import Effort

REPLAYED_WORK = 5
"""For how many pods a kind of typical pods counts about which a node is asked by a whole admission."""

Figures = Mapping[str, Fragmented]
"""Of one node, by resource."""


class Pool:
    """What the nodes of a pool answer to its typical pods, in the cluster as it is now."""

    def __init__(self, name: str, size: int, mix: Mix, states: Mapping[str, NodeState], effort: Effort) -> None:
        self.name, self.mix = name, mix
        self._size, self._questions = size, Questions(mix, effort)
        self._answers: dict[str, NodeAnswers] = {}
        self.figures: dict[str, Figures] = {}
        self._totals: Figures = {}
        self.renew(states)

    def renew(self, states: Mapping[str, NodeState]) -> None:
        """Ask these nodes, which have changed."""
        for node, state in states.items():
            self._answers[node] = self._questions.ask(state)
            self.figures[node] = self._figures_of(self._answers[node])
        self._totals = fragmentation_of(self._answers.values(), self.mix)

    def least(self, threshold: float) -> float:
        """By how much the number has to fall at least."""
        return threshold / max(1, len(self.figures))

    @property
    def work(self) -> int:
        """What it takes to ask one node."""
        return 1 + REPLAYED_WORK * self._questions.replayed

    def asked(self, state: NodeState) -> Figures:
        """The figures of a node in this state."""
        return self._figures_of(self._questions.ask(state))

    def _figures_of(self, answers: NodeAnswers) -> Figures:
        return fragmentation_of([answers], self.mix)

    @property
    def number(self) -> float | None:
        """The number of the pool as it is."""
        return overall(self._totals)

    def number_with(self, changed: Mapping[str, Figures]) -> float | None:
        """The number if these nodes had other figures."""
        totals = dict(self._totals)
        for node, figures in changed.items():
            for resource, before in self.figures[node].items():
                totals[resource] = totals[resource] - before
            for resource, after in figures.items():
                totals[resource] = totals.get(resource, Fragmented()) + after
        return overall(totals)

    def unusable(self, node: str) -> float:
        """How much of the pool's number is that of the node."""
        shares = [
            figures.unusable / free
            for resource, figures in self.figures[node].items()
            if (free := self._totals[resource].free)
        ]
        return sum(shares)

    def outcome(self) -> DefragmentedPool:
        """The pool as it is, with one number twice."""
        admitting = [sum(answer.admits[kind.key] for answer in self._answers.values()) for kind in self.mix.pods]
        typical = tuple((kind, nodes, nodes) for kind, nodes in zip(self.mix.pods, admitting, strict=True))
        return DefragmentedPool(self.name, self._size, tuple(self._answers), self.number, self.number, typical)


def pools_called(snapshot: Snapshot, kinds_of: KindsOf, names: Collection[str], effort: Effort) -> Iterable[Pool]:
    """The pools of these names, by default all, with those of their nodes that count."""
    pool_of = pools_of(snapshot.nodes.values())
    by_pool: dict[str, list[str]] = {}
    for node in sorted(snapshot.nodes):
        by_pool.setdefault(pool_of.get(node, NO_POOL), []).append(node)
    for name, nodes in sorted(by_pool.items()):
        if not names or name in names:
            counted = [node for node in nodes if counts(snapshot, node)]
            mix = mix_of(kinds_of([snapshot.nodes[node] for node in counted]))
            yield Pool(name, len(nodes), mix, {node: snapshot.publications[node].state for node in counted}, effort)
