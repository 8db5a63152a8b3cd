"""Who writes an object beside the agent."""

import pytest

from topomend.wire.published.writers import other_writer


def managed(*entries: tuple[str, str]) -> dict[str, object]:
    return {
        "metadata": {"managedFields": [{"manager": manager, "fieldsV1": {field: {}}} for manager, field in entries]}
    }


@pytest.mark.parametrize(
    ("entries", "other"),
    [
        ([("topomend-agent", "f:zones")], ""),
        ([("topomend-agent", "f:zones"), ("someone", "f:metadata")], ""),
        ([("topomend-agent", "f:spec"), ("nfd-master", "f:status")], ""),
        ([("nfd-master", "f:zones")], "nfd-master"),
        ([("topomend-agent", "f:zones"), ("kubectl-edit", "f:attributes")], "kubectl-edit"),
        ([], "somebody who left no name"),
    ],
)
def test_whoever_else_writes_what_the_object_says_is_named(entries: list[tuple[str, str]], other: str) -> None:
    assert other_writer(managed(*entries), "topomend-agent") == other


def test_of_very_many_the_first_are_named() -> None:
    """Whoever may write the object may apply it under any number of names of 128 characters, and a condition of the
    NodeTopology, which says them, has 32,768 at most: with more, nothing of the node would be published."""
    names = [f"{number:0128}" for number in range(400)]
    others = other_writer(managed(*((name, "f:zones") for name in names)), "topomend-agent")
    assert others == f"{names[0]}, {names[1]}, {names[2]} and 397 more"
