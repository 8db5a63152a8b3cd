"""PodDisruptionBudgets as kube-scheduler and the API server read them."""

from typing import Any

import pytest

from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement
from topomend.wire.disruption_budget import MAX_VALUES, read_budget
from topomend.wire.document import MalformedObject


def budget(selector: Any, **status: Any) -> dict[str, Any]:
    return {"spec": {"selector": selector}, "status": status}


def test_labels_and_expressions_are_one_selector() -> None:
    expression = {"key": "tier", "operator": "NotIn", "values": ["test"]}
    read = read_budget(budget({"matchLabels": {"app": "web"}, "matchExpressions": [expression]}, disruptionsAllowed=2))
    requirements = (Requirement("app", "In", ("web",)), Requirement("tier", "NotIn", ("test",)))
    assert read.selects == Placement(terms=(NodeSelectorTerm(requirements),))
    assert (read.allowed, read.leaving, read.empty) == (2, frozenset(), False)


@pytest.mark.parametrize(
    ("selector", "empty"),
    [(None, False), ({}, True), ({"matchLabels": {}}, True), ({"matchLabels": {}, "matchExpressions": []}, True)],
)
def test_without_a_requirement_it_selects_no_pod_and_an_empty_one_is_named(selector: Any, *, empty: bool) -> None:
    read = read_budget(budget(selector))
    assert (read.selects, read.empty) == (Placement(terms=(NodeSelectorTerm(),)), empty)


def test_pods_whose_eviction_was_granted_are_named() -> None:
    granted = {"web-1": "2026-01-01T00:00:00Z"}
    assert read_budget(budget({}, disruptedPods=granted)).leaving == {"web-1"}


def test_a_huge_selector_may_select_any_pod() -> None:
    """A namespace may have thousands of them, and all are in memory together."""
    values = [str(number) for number in range(MAX_VALUES)]
    for selector in (
        {"matchExpressions": [{"key": "a", "operator": "In", "values": values}]},
        {"matchLabels": dict.fromkeys(["more", *values], "")},
    ):
        assert read_budget(budget(selector)).selects is None


def test_a_malformed_one_is_named_by_its_field() -> None:
    with pytest.raises(MalformedObject, match=r"spec\.selector\.matchLabels"):
        read_budget(budget({"matchLabels": ["app"]}))
