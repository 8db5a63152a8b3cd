"""Each pool of a cluster with its typical pods, its fragmentation, and the nodes and pods that make it so.

For people, who ask once. Leaves the number to ``fragmentation``, and who is typical to ``typical_pods``.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from topomend.cache.snapshot import Snapshot
from topomend.decide.pools.fragmentation import Fragmented, NodeAnswers, Questions, counts, fragmentation_of
from topomend.decide.pools.typical_pods import Kinds, Mix, TypicalPod, mix_of
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_pool import NO_POOL, pools_of
from topomend.model.nodes.node_state import NodeState, PodAllocation
from topomend.replay.admission import release
from topomend.replay.effort import UNLIMITED, Effort

MOST_NODES, MOST_PODS = 3, 3
"""How many nodes are named for each resource of a pool, and how many pods of each node."""

KindsOf = Callable[[Sequence[Node]], Kinds]
"""Which kinds of pods are typical for these nodes."""


@dataclass(frozen=True)
class Culprit:
    """A node on which much is unusable. ``pods``: those without any one of which less would be, most of it first."""

    node: str
    fragmented: Fragmented
    pods: tuple[PodAllocation, ...]


@dataclass(frozen=True)
class PoolResource:
    """A resource in a pool. ``fragmented`` is None where no typical pod asks for it; ``covered`` as ``Mix.covered``."""

    name: str
    free: int
    fragmented: Fragmented | None
    covered: float
    culprits: tuple[Culprit, ...]


@dataclass(frozen=True)
class Pool:
    """``nodes`` are those that count, of ``size`` in all. ``typical`` are the kinds, with how many nodes admit each."""

    name: str
    size: int
    nodes: tuple[str, ...]
    typical: tuple[tuple[TypicalPod, int], ...]
    resources: tuple[PoolResource, ...]


def pools(
    snapshot: Snapshot, kinds_of: KindsOf, names: Collection[str] = (), effort: Effort = UNLIMITED
) -> Sequence[Pool]:
    """The pools of the cluster, or of the nodes of these names. Raises Overspent."""
    pool_of = pools_of(snapshot.nodes.values())
    by_pool: dict[str, list[str]] = {}
    for name in sorted(names or snapshot.nodes):
        by_pool.setdefault(pool_of.get(name, NO_POOL), []).append(name)
    return [_pool(snapshot, pool, nodes, kinds_of, effort) for pool, nodes in sorted(by_pool.items())]


def _pool(snapshot: Snapshot, name: str, nodes: Sequence[str], kinds_of: KindsOf, effort: Effort) -> Pool:
    counted = [node for node in nodes if counts(snapshot, node)]
    mix = mix_of(kinds_of([snapshot.nodes[node] for node in counted]))
    states = {node: snapshot.publications[node].state_with_assumed(effort) for node in counted}
    questions = Questions(mix, effort)
    answers = {node: questions.ask(state) for node, state in states.items()}
    admitting = [sum(answer.admits[typical.key] for answer in answers.values()) for typical in mix.pods]
    return Pool(
        name,
        len(nodes),
        tuple(counted),
        tuple(zip(mix.pods, admitting, strict=True)),
        tuple(_resources(states, answers, mix, questions)),
    )


def _resources(
    states: Mapping[str, NodeState], answers: Mapping[str, NodeAnswers], mix: Mix, questions: Questions
) -> Iterable[PoolResource]:
    found = fragmentation_of(answers.values(), mix)
    by_node = {node: fragmentation_of([answer], mix) for node, answer in answers.items()}
    for resource in sorted({resource for answer in answers.values() for resource in answer.free}):
        free = sum(answer.free.get(resource, 0) for answer in answers.values())
        here = {node: figures[resource] for node, figures in by_node.items() if resource in figures}
        worst = sorted(here, key=lambda node: here[node].unusable, reverse=True)[:MOST_NODES]
        culprits = tuple(
            Culprit(node, here[node], _in_the_way(states[node], here[node], resource, mix, questions))
            for node in worst
            if here[node].unusable > 0
        )
        yield PoolResource(resource, free, found.get(resource), mix.covered(resource), culprits)


def _in_the_way(
    state: NodeState, now: Fragmented, resource: str, mix: Mix, questions: Questions
) -> tuple[PodAllocation, ...]:
    """The pods on a node without any one of which less of the resource would be unusable, most of it first."""
    gains = [(now.unusable - _without(state, pod, mix, questions, resource), pod) for pod in state.pods]
    gains.sort(key=lambda each: (-each[0], each[1].namespace, each[1].name))
    return tuple(pod for gain, pod in gains[:MOST_PODS] if gain > 0)


def _without(state: NodeState, pod: PodAllocation, mix: Mix, questions: Questions, resource: str) -> float:
    """What would be unusable once the pod has ended."""
    answer = questions.ask(release(state, pod.namespace, pod.name))
    return fragmentation_of([answer], mix).get(resource, Fragmented()).unusable
