"""The pods of a cluster as a search for moves takes them: who may go by the budgets, and who waits in which order.

Owns what the plugin and the operator have in common there. Leaves the other rules to ``movable``.
"""

from collections.abc import Iterable, Sequence

from topomend.cache.snapshot import PodKey, Snapshot
from topomend.decide.budgets import Budget, NamespacesBudget
from topomend.decide.defragment.moves import Movable, Waiting
from topomend.decide.pools.typical_pods import NODES_TRIED, Kinds, kinds_held, kinds_waiting, merged, of_each_namespace
from topomend.decide.queue.order import is_expected_to_end
from topomend.model.nodes.node import Node
from topomend.model.pods.evictable_pod import EvictablePod
from topomend.model.pods.scheduling import WatchedPod
from topomend.wire.group import FIT_GATE, RELAUNCH_GATE


def within_budgets(
    chosen: Iterable[EvictablePod], budgets: Sequence[NamespacesBudget]
) -> tuple[Sequence[Movable], Sequence[Budget]]:
    """Those that a budget lets go, and the budgets. One that two budgets select is never evicted (eviction.go)."""
    movable: list[Movable] = []
    protected: dict[int, set[str]] = {}
    for each in chosen:
        pod = each.pod
        selecting = [number for number, one in enumerate(budgets) if one.protects(pod.namespace, each.labels)]
        if len(selecting) > 1 or any(budgets[number].budget.allowed < 1 for number in selecting):
            continue
        movable.append(Movable(pod.pod, pod.placement, pod.node, each.owner, pod.priority))
        for number in selecting:
            protected.setdefault(number, set()).add(pod.uid)
    return movable, [Budget(frozenset(uids), budgets[n].budget.allowed) for n, uids in protected.items()]


def waits_for_us(pod: WatchedPod) -> bool:
    """Whether topomend chooses a node for the pod, apart from any group."""
    ours = bool(pod.gates) and {FIT_GATE, RELAUNCH_GATE}.issuperset(pod.gates)
    return ours and not (pod.deleting or pod.group)


def queue_of(pods: Iterable[WatchedPod]) -> Sequence[Waiting]:
    """The pods that wait, in the order of their turns."""
    return [
        Waiting(pod.pod, pod.placement, pod.priority, certain=not (pod.scheduler_rules or pod.claims))
        for pod in sorted(pods, key=lambda pod: pod.order)
    ]


def ending_of(pod: WatchedPod) -> PodKey | None:
    """The pod's key if it is expected to end by itself."""
    return (pod.namespace, pod.name) if is_expected_to_end(pod.owner) else None


def kinds_now(snapshot: Snapshot, nodes: Sequence[Node]) -> Kinds:
    """The kinds of pods that are typical for these nodes now: those that hold something there, and that wait for one.

    They are those of the metric of fragmentation. Each node has published a state.
    """
    refused = (refusal.pod for refusal in snapshot.refused.values())
    waiting = of_each_namespace((pod.pod, pod.placement) for pod in (*snapshot.gated.values(), *refused))
    held = (kinds_held(snapshot.publications[node.name].remaining) for node in nodes)
    return merged((*held, kinds_waiting(waiting, nodes[:NODES_TRIED])))
