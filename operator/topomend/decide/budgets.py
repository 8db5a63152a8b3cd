"""PodDisruptionBudgets as those who choose pods to leave need them. Leaves the choice to them."""

from collections.abc import Mapping
from dataclasses import dataclass

from topomend.replay.lifecycle.node_affinity import matches_terms
from topomend.wire.disruption_budget import DisruptionBudget


@dataclass(frozen=True)
class Budget:
    """A PodDisruptionBudget: the uids of the ``pods`` that it protects, of which so many are ``allowed`` to leave."""

    pods: frozenset[str]
    allowed: int


@dataclass(frozen=True)
class NamespacesBudget:
    """A budget and its namespace."""

    namespace: str
    budget: DisruptionBudget

    def protects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the API server keeps a pod by the budget (eviction.go:getPodDisruptionBudgets)."""
        budget = self.budget
        if namespace != self.namespace:
            return False
        return budget.empty or budget.selects is None or matches_terms(budget.selects, "", labels)
