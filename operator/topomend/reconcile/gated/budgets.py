"""The PodDisruptionBudgets of pods that may have to leave, read anew: they count by the second.

Owns which budgets and labels are asked for. Leaves whom they spare to ``decide/queue/victims``, and whether an eviction
is allowed to the API server.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from topomend.decide.queue.victims import Budget
from topomend.kube.client import PODS, UNENDED, Client, Resource
from topomend.model.cluster import WatchedPod
from topomend.replay.lifecycle.node_affinity import matches_terms
from topomend.wire.disruption_budget import DisruptionBudget, read_budget
from topomend.wire.document import Document

BUDGETS = Resource("policy/v1", "poddisruptionbudgets")


def allowed_disruptions(client: Client, namespace: str) -> float:
    """How many pods of the namespace may leave by the strictest of its budgets, whatever that selects.

    Raises APIError.
    """

    def allowed(content: dict[str, Any]) -> Iterator[int]:
        yield int(content.get("status", {}).get("disruptionsAllowed", 0))

    return min(client.read(BUDGETS, allowed, namespace=namespace).items, default=inf)


def budgets_of(client: Client, by_node: Mapping[str, Sequence[WatchedPod]], priority: int) -> Sequence[Budget]:
    """The budgets of the pods below ``priority`` on these nodes. Raises APIError, and MalformedObject."""
    lower = {other.namespace for others in by_node.values() for other in others if other.priority < priority}
    found: list[Budget] = []
    for namespace in sorted(lower):
        budgets = client.read(BUDGETS, lambda content: (read_budget(content),), namespace=namespace).items
        if budgets:
            found += _of_namespace(client, namespace, by_node, budgets)
    return found


def _of_namespace(
    client: Client, namespace: str, nodes: Mapping[str, object], budgets: Sequence[DisruptionBudget]
) -> Iterator[Budget]:
    pods: list[set[str]] = [set() for _ in budgets]

    def protected(content: dict[str, Any]) -> Iterator[None]:
        metadata = Document(content)["metadata"]
        labels = {key: value.text("") for key, value in metadata["labels"].fields()}
        for budget, uids in zip(budgets, pods, strict=True):
            if _protects(budget, metadata["name"].text(), labels):
                uids.add(metadata["uid"].text())
        yield from ()

    for node in nodes:
        fields = f"spec.nodeName={node},{UNENDED}"
        client.read(PODS, protected, namespace=namespace, fields=fields, cached=True, metadata_only=True)
    for budget, uids in zip(budgets, pods, strict=True):
        yield Budget(frozenset(uids), budget.allowed)


def _protects(budget: DisruptionBudget, name: str, labels: Mapping[str, str]) -> bool:
    """Source: default_preemption.go:filterPodsWithPDBViolation, which leaves out pods without labels."""
    if not labels or name in budget.leaving:
        return False
    return budget.selects is None or matches_terms(budget.selects, "", labels)
