"""The PodDisruptionBudgets of pods that may have to leave, read anew each time.

Owns which budgets and labels are asked for. Leaves whom they spare to ``decide/queue/victims``, and whether an eviction
is allowed to the API server.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from topomend.decide.budgets import Budget
from topomend.kube.client import Client
from topomend.kube.resources import BUDGETS, PODS, UNENDED
from topomend.model.pods.scheduling import WatchedPod
from topomend.replay.lifecycle.node_affinity import matches_terms
from topomend.wire.disruption_budget import DisruptionBudget, read_budget
from topomend.wire.document import Document


class Budgets:
    """The budgets of pods on some nodes, each read once until ``forget``. ``lists`` counts the LISTs.

    ``of_api_server`` is that they are those by which it evicts, as they are now; else those at which kube-scheduler
    looks, as it was told last. For one thread.
    """

    def __init__(self, client: Client, *, of_api_server: bool = False) -> None:
        self._client, self._cached = client, not of_api_server
        self._protects = _keeps if of_api_server else _spares
        self.lists = 0
        self._known: dict[tuple[str, str], Sequence[Budget]] = {}
        self._selecting: dict[str, Sequence[DisruptionBudget]] = {}

    def forget(self) -> None:
        """What is asked for from now on is read anew."""
        self._known.clear()
        self._selecting.clear()

    def of(self, by_node: Mapping[str, Sequence[WatchedPod]], priority: int) -> Sequence[Budget]:
        """The budgets of the pods below ``priority`` on these nodes. Raises APIError, and MalformedObject."""
        found: list[Budget] = []
        for node, others in by_node.items():
            for namespace in sorted({other.namespace for other in others if other.priority < priority}):
                if (namespace, node) not in self._known:
                    self._known[namespace, node] = self._read(namespace, node)
                found += self._known[namespace, node]
        return found

    def _read(self, namespace: str, node: str) -> Sequence[Budget]:
        if namespace not in self._selecting:
            self.lists += 1
            reading = self._client.read(BUDGETS, _read_budget, namespace=namespace, cached=self._cached)
            self._selecting[namespace] = reading.items
        budgets = self._selecting[namespace]
        if not budgets:
            return ()
        pods: list[set[str]] = [set() for _ in budgets]

        def protected(content: dict[str, Any]) -> Iterator[None]:
            metadata = Document(content)["metadata"]
            labels = {key: value.text("") for key, value in metadata["labels"].fields()}
            for budget, uids in zip(budgets, pods, strict=True):
                if self._protects(budget, metadata["name"].text(), labels):
                    uids.add(metadata["uid"].text())
            yield from ()

        fields = f"spec.nodeName={node},{UNENDED}"
        self.lists += 1
        self._client.read(PODS, protected, namespace=namespace, fields=fields, cached=self._cached, metadata_only=True)
        return [Budget(frozenset(uids), budget.allowed) for budget, uids in zip(budgets, pods, strict=True)]


def _read_budget(content: dict[str, Any]) -> Iterator[DisruptionBudget]:
    yield read_budget(content)


def _spares(budget: DisruptionBudget, name: str, labels: Mapping[str, str]) -> bool:
    """Source: default_preemption.go:filterPodsWithPDBViolation, which leaves out pods without labels."""
    if not labels or name in budget.leaving:
        return False
    return budget.selects is None or matches_terms(budget.selects, "", labels)


def _keeps(budget: DisruptionBudget, _: str, labels: Mapping[str, str]) -> bool:
    """Source: pkg/registry/core/pod/storage/eviction.go:getPodDisruptionBudgets."""
    return budget.empty or budget.selects is None or matches_terms(budget.selects, "", labels)
