"""What a pod takes of its node's totals. kube-scheduler's own rule, by its documented cases."""

from typing import Any

import pytest
from tests.builders import pod_manifest

from topomend.wire.pods.pod_usage import UsageReader, read_usage, was_resized


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


VARIANTS = [
    pod_with({}),
    pod_with({}, overhead={"cpu": "1"}),
    pod_with({}, resources={"requests": {"cpu": "3"}}),
    pod_with({"nodeAllocatableResourceClaimStatuses": [{"resources": {"cpu": "1"}}]}),
    pod_with({}, initContainers=[{"name": "first", "resources": {"requests": {"cpu": "4"}}}]),
    pod_with({}, initContainers=[{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "4"}}}]),
    pod_with(of_container(allocatedResources={"cpu": "3"})),
    pod_with(of_container(resources={"requests": {"cpu": "5"}})),
    pod_with({"initContainerStatuses": [{"name": "main", "allocatedResources": {"cpu": "6"}}]}),
    pod_with(
        of_container(allocatedResources={"cpu": "1"})
        | {"conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
    ),
    pod_with({"additionalNodeAllocatableResources": [{"mapping": [{"name": "cpu", "quantity": "3"}]}]}),
]


def test_a_reader_of_many_pods_says_of_each_what_it_takes() -> None:
    reader = UsageReader()
    assert [reader.read(each) for each in VARIANTS * 2] == [read_usage(each) for each in VARIANTS] * 2


@pytest.mark.parametrize("containers", ["x", [3], [None]])
def test_a_reader_of_many_pods_counts_a_malformed_one_as_one_pod(containers: Any) -> None:
    assert UsageReader().read(pod_with({}, initContainers=containers)) == {"pods": 1000}


def test_pods_of_a_workload_are_read_once() -> None:
    reader, other = UsageReader(), pod_with({"podIP": "10.0.0.1"}, nodeName="b")
    other["metadata"]["name"] = "q"
    assert reader.read(VARIANTS[0]) is reader.read(other)


def test_what_is_allocated_as_it_is_asked_for_changes_nothing() -> None:
    content = pod_with(of_container(allocatedResources={"cpu": "2"}, resources={"requests": {"cpu": "2"}}))
    assert read_usage(content) == {"cpu": 2000, "pods": 1000}


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
