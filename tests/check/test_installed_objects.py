"""What is read of topomend's own objects, and what is wrong with a field that cannot be read."""

from typing import Any

import pytest

from topomend.check.facts import Kind
from topomend.check.installed_objects import read_bound, read_deployment, read_kind, read_own_pod, read_parameter
from topomend.wire.document import MalformedObject

Object = dict[str, Any]


def test_a_schema_that_lacks_a_field_is_older() -> None:
    shipped: Object = {"properties": {"status": {"properties": {"a": {}, "b": {"items": {"properties": {"c": {}}}}}}}}
    served: Object = {"properties": {"metadata": {}, "status": {"properties": {"a": {}, "b": {}}}}}
    assert read_kind("k", shipped, served).lacking == ("status.b[].c",)
    assert read_kind("k", shipped, None) == Kind("k", served=False)


def test_a_mutating_policy_without_a_binding_is_not_in_force() -> None:
    policies = [{"metadata": {"name": name}} for name in ("one", "two")]
    assert read_bound(policies, [{"spec": {"policyName": "one"}}]) == {"one": True, "two": False}


@pytest.mark.parametrize(
    ("until", "words"), [("soon", "a time such as"), ("2026-01-01T00:00:00", "with its offset"), (7, "a time")]
)
def test_a_time_that_is_none_names_its_field(until: Any, words: str) -> None:
    with pytest.raises(MalformedObject, match=f"validUntil.*{words}"):
        read_parameter({"metadata": {"name": "topomend-brake"}, "validUntil": until}, "Brake")


def test_a_flag_counts_more_than_its_variable() -> None:
    container = {"args": ["operator", "--mode=observe"], "env": [{"name": "TOPOMEND_MODE", "value": "relaunch"}]}
    content = {"metadata": {"name": "o"}, "spec": {"template": {"spec": {"containers": [container]}}}}
    operator = read_deployment(content)
    assert operator.value_of("--mode", "TOPOMEND_MODE") == "observe"
    assert operator.value_of("--other", "TOPOMEND_MODE") == "relaunch"
    assert operator.value_of("--other", "OTHER", "none") == "none"
    assert (operator.wanted, operator.ready) == (1, 0)


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"conditions": [{"type": "Ready", "status": "True"}]}, ""),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, "its readiness probe fails"),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}]},
            "Unschedulable: 0/3",
        ),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, "ErrImagePull"),
        ({}, "it has not started"),
    ],
)
def test_why_a_pod_is_not_ready_is_said_in_its_own_words(status: Object, trouble: str) -> None:
    pod = read_own_pod({"metadata": {"name": "p"}, "spec": {}, "status": status})
    assert pod.trouble.endswith(trouble)
    assert bool(pod.trouble) == bool(trouble)
