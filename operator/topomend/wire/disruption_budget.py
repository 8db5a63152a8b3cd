"""Read a policy/v1 PodDisruptionBudget, as kube-scheduler does when it preempts and the API server when it evicts.

Source: pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go:filterPodsWithPDBViolation,
pkg/registry/core/pod/storage/eviction.go:getPodDisruptionBudgets.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any

from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement
from topomend.wire.document import Document
from topomend.wire.pods.scheduling import read_requirements

MAX_VALUES = 20
"""Keys and values of a selector; a namespace may have thousands of budgets, which are in memory together."""


@dataclass(frozen=True)
class DisruptionBudget:
    """How many of the pods that it ``selects`` are ``allowed`` to leave now.

    ``selects`` is None for a selector of more than MAX_VALUES, which may select any. ``leaving``: the names of the pods
    whose eviction was granted already. An ``empty`` selector selects no pod for kube-scheduler, and for the API server
    each pod of the namespace.
    """

    selects: Placement | None
    allowed: int
    leaving: frozenset[str]
    empty: bool = False


def read_budget(content: Any) -> DisruptionBudget:
    """The budget of a PodDisruptionBudget object; one without a selector selects no pod. Raises MalformedObject."""
    document = Document(content)
    selector, status = document["spec"]["selector"], document["status"]
    return DisruptionBudget(
        _read_selector(selector),
        status["disruptionsAllowed"].integer(0),
        frozenset(name for name, _ in status["disruptedPods"].fields()),
        empty=not selector.absent and not any(part.content for _, part in selector.fields()),
    )


def _read_selector(selector: Document) -> Placement | None:
    labels = tuple(islice(selector["matchLabels"].fields(), MAX_VALUES + 1))
    values = len(labels)
    for requirement in islice(selector["matchExpressions"], MAX_VALUES + 1):
        values += 1 + sum(1 for _ in islice(requirement["values"], MAX_VALUES))
    if values > MAX_VALUES:
        return None
    expressions = (Requirement(key, "In", (value.text(),)) for key, value in labels)
    return Placement(terms=(NodeSelectorTerm((*expressions, *read_requirements(selector["matchExpressions"]))),))
