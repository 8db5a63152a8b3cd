"""Two reasons to reconcile a pod again become one."""

import pytest

from topomend.reconcile.result import DONE, Result, earliest


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (Result(60.0), None, Result(60.0)),
        (Result(60.0), Result(3.0), Result(3.0)),
        (DONE, Result(3.0), Result(3.0)),
        (Result(0.0), Result(3.0), Result(0.0)),
        (DONE, DONE, DONE),
        (
            Result(60.0, on_capacity=True),
            Result(on_topology_change=True),
            Result(60.0, on_capacity=True, on_topology_change=True),
        ),
        (Result(on_any_change=True), Result(5.0), Result(5.0, on_any_change=True)),
    ],
)
def test_a_pod_is_requeued_as_soon_as_either_result_says(left: Result, right: Result | None, expected: Result) -> None:
    assert earliest(left, right) == expected
    assert right is None or earliest(right, left) == expected


@pytest.mark.parametrize(
    ("result", "on_change"),
    [
        (Result(60.0), False),
        (Result(on_capacity=True), True),
        (Result(on_topology_change=True), True),
        (Result(on_any_change=True), True),
    ],
)
def test_only_a_result_that_names_a_change_waits_for_one(result: Result, on_change: bool) -> None:
    assert result.on_change is on_change
