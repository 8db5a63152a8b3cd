"""What a pod takes of its node's totals. kube-scheduler's own rule, by its documented cases."""

from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.wire.pod_usage import read_usage, was_resized


def pod_with(status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    content = pod_manifest("p", "request:cpu=2", spec=spec, status=status)
    content["spec"]["containers"][0]["name"] = "main"
    return content


def of_container(**amounts: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", **amounts}]}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        ({}, 2000),
        (of_container(allocatedResources={"cpu": "1"}), 2000),
        (of_container(allocatedResources={"cpu": "3"}), 3000),
        (of_container(allocatedResources={"cpu": "1"}, resources={"requests": {"cpu": "4"}}), 4000),
        (of_container(resources={"limits": {"cpu": "9"}}), 2000),
        (
            of_container(allocatedResources={"cpu": "1"})
            | {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]},
            1000,
        ),
        (
            of_container(allocatedResources={"cpu": "1"})
            | {"conditions": [{"type": "PodResizePending", "reason": "Deferred"}]},
            2000,
        ),
    ],
)
def test_a_pod_that_is_resized_takes_the_most_of_what_is_asked_allocated_and_actuated(
    status: dict[str, Any], cpu: int
) -> None:
    assert read_usage(pod_with(status)) == {"cpu": cpu, "pods": 1000}


def test_the_overhead_of_its_runtime_class_counts() -> None:
    assert read_usage(pod_with({}, overhead={"cpu": "250m"}))["cpu"] == 2250


def test_a_pod_that_cannot_be_read_counts_as_one_pod() -> None:
    assert read_usage({"metadata": {"name": "p"}, "spec": {"containers": []}}) == {"pods": 1000}


def test_who_has_resized_a_pod_is_read_of_its_managers() -> None:
    content = pod_with({})
    content["metadata"]["managedFields"] = [{"manager": "kubelet", "subresource": "status"}]
    assert not was_resized(content)
    content["metadata"]["managedFields"].append({"manager": "kubectl", "subresource": "resize"})
    assert was_resized(content)
