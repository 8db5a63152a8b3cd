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
