"""Required node affinity as component-helpers/scheduling/corev1/nodeaffinity has it."""

import pytest

from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement
from topomend.replay.lifecycle.node_affinity import matches_selector, matches_terms, parsed

LABELS = {"pool": "5", "zone": "a"}


def matches(*expressions: Requirement, fields: tuple[Requirement, ...] = ()) -> bool:
    return matches_terms(parsed(Placement(terms=(NodeSelectorTerm(expressions, fields),))), "n1", LABELS)


@pytest.mark.parametrize(
    ("requirement", "matched"),
    [
        (Requirement("pool", "In", ("5", "6")), True),
        (Requirement("pool", "NotIn", ("5",)), False),
        (Requirement("none", "NotIn", ("5",)), True),
        (Requirement("zone", "Exists"), True),
        (Requirement("zone", "DoesNotExist"), False),
        (Requirement("pool", "Gt", ("4",)), True),
        (Requirement("pool", "Lt", ("4",)), False),
        (Requirement("zone", "Gt", ("4",)), False),
    ],
)
def test_an_expression_matches_by_its_operator(requirement: Requirement, matched: bool) -> None:
    assert matches(requirement) is matched


@pytest.mark.parametrize(
    "wrong",
    [
        Requirement("none", "NotIn", ()),
        Requirement("zone", "Exists", ("a",)),
        Requirement("pool", "Gt", ("4", "3")),
        Requirement("pool", "Gt", ("-1",)),  # no value of a label
        Requirement("pool", "Like", ("5",)),
    ],
)
def test_a_term_that_cannot_be_parsed_matches_nothing(wrong: Requirement) -> None:
    assert not matches(Requirement("zone", "Exists"), wrong)


def test_a_name_matches_as_a_field() -> None:
    assert matches(fields=(Requirement("metadata.name", "In", ("n1",)),))
    assert not matches(fields=(Requirement("metadata.name", "NotIn", ("n1",)),))
    assert not matches(fields=(Requirement("metadata.name", "In", ("n1", "n2")),))


def test_an_empty_term_matches_nothing_and_no_term_everything() -> None:
    assert not matches()
    assert matches_terms(Placement(), "n1", {})
    assert not matches_selector(Placement(node_selector={"pool": "6"}), LABELS)
