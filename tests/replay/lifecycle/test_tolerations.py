"""Tolerations as api/core/v1/toleration.go has them."""

import pytest

from topomend.model.nodes.node import Taint
from topomend.model.pods.scheduling import Toleration
from topomend.replay.lifecycle.tolerations import tolerates

TAINT = Taint("gpu", "NoExecute", "5")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "", "5"), True),
        (Toleration("gpu", "Equal", "6"), False),
        (Toleration("", "Equal", "5"), True),  # the API server refuses it; the rule itself compares values
        (Toleration("gpu", "Exists", effect="NoSchedule"), False),
        (Toleration("gpu", "Lt", "6"), False),  # the gate is off
    ],
)
def test_a_toleration_matches_by_key_effect_and_value(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates([toleration], TAINT) is tolerated


@pytest.mark.parametrize(
    ("operator", "bound", "tolerated"), [("Lt", "6", True), ("Gt", "6", False), ("Gt", "4", True), ("Gt", "x", False)]
)
def test_numbers_compare_where_the_gate_is_on(operator: str, bound: str, tolerated: bool) -> None:
    assert tolerates([Toleration("gpu", operator, bound)], TAINT, compares=True) is tolerated
