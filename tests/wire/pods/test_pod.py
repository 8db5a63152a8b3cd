from typing import Any

import pytest

from topomend.model.pods.pod import ContainerKind
from topomend.wire.document import MalformedObject
from topomend.wire.pods.pod import read_pod


def pod_object(**spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}


def test_init_containers_and_sidecars_come_before_app_containers_as_written() -> None:
    pod = read_pod(
        pod_object(
            initContainers=[{"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}],
        )
    )
    assert [(container.name, container.kind) for container in pod.containers] == [
        ("i", ContainerKind.INIT),
        ("s", ContainerKind.SIDECAR),
        ("j", ContainerKind.INIT),
        ("c", ContainerKind.APP),
    ]


def test_requests_default_to_limits_one_by_one() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    pod = read_pod(pod_object(containers=[{"name": "c", "resources": resources}]))
    assert pod.containers[0].resources.requests == {"cpu": 1000, "memory": (1 << 30) * 1000}


def test_the_namespace_defaults_and_generate_name_stands_in_for_a_name() -> None:
    pod = read_pod({"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}})
    assert (pod.namespace, pod.name) == ("default", "web-")


def test_pod_level_resources_are_distinguished_from_none() -> None:
    assert read_pod(pod_object()).resources is None
    pod = read_pod(pod_object(resources={"limits": {"cpu": "2"}}))
    assert pod.resources is not None
    assert pod.resources.requests == {"cpu": 2000}


def test_pod_level_resources_are_filled_in_from_the_containers_as_the_api_server_does() -> None:
    containers = [
        {"name": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}},
        {"name": "b", "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}}},
    ]
    pod = read_pod(pod_object(containers=containers, resources={"limits": {"cpu": "4", "vendor.com/x": "1"}}))
    assert pod.resources is not None
    assert pod.resources.limits == {"cpu": 4000, "vendor.com/x": 1000, "hugepages-2Mi": (6 << 20) * 1000}
    assert pod.resources.requests == {"cpu": 2000, "memory": (1 << 30) * 1000, "hugepages-2Mi": (6 << 20) * 1000}


def test_overhead_and_what_claims_take_of_the_node_are_read_as_1_36_and_1_37_write_them() -> None:
    older = {"resourceClaimName": "a", "containers": ["c"], "resources": {"cpu": "1", "memory": "1Ki"}}
    newer = {
        "resourceClaimName": "b",
        "containers": ["c", "d"],
        "mapping": [{"name": "cpu", "quantity": "2"}],
        "overhead": [
            {"name": "cpu", "perPod": "100m", "perContainer": "10m"},
            {"name": "memory", "perContainer": "1Ki"},
        ],
    }
    status = {"nodeAllocatableResourceClaimStatuses": [older, newer]}
    pod = read_pod(pod_object(overhead={"cpu": "250m"}) | {"status": status})
    assert pod.overhead == {"cpu": 250}
    assert pod.claimed == {"cpu": 3120, "memory": 3 * 1024 * 1000}


def test_what_claims_take_counts_once_under_either_name_of_its_field() -> None:
    """The new name is that of a proposal (kubernetes/enhancements#6324): 1.38.0-beta.0 still has the old one."""
    former = {"resourceClaimName": "a", "containers": ["c"], "mapping": [{"name": "cpu", "quantity": "2"}]}
    renamed = {key: value for key, value in former.items() if key != "resourceClaimName"}
    renamed |= {"sourceKind": "ResourceClaim", "sourceName": "a"}
    fields = {"nodeAllocatableResourceClaimStatuses": [former], "additionalNodeAllocatableResources": [renamed]}
    for status in ({name: entries} for name, entries in fields.items()):
        assert read_pod(pod_object() | {"status": status}).claimed == {"cpu": 2000}
    assert read_pod(pod_object() | {"status": fields}).claimed == {"cpu": 2000}


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"kind": "Job"}, "kind: 'Job' where Pod belongs"),
        ({"spec": {"containers": []}}, r"spec\.containers: .* at least one container"),
        ({"spec": {"containers": [{}]}}, r"spec\.containers\[0\]\.name: missing"),
        (
            {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "many"}}}]}},
            r"spec\.containers\[0\]\.resources\.limits\['cpu'\]: 'many' is not a quantity",
        ),
        (
            {"spec": {"containers": [{"name": "c", "resources": {"requests": {"memory": "-1Gi"}}}]}},
            "a quantity that is not negative",
        ),
        ({"spec": {"containers": {"name": "c"}}}, r"spec\.containers: .* where a list belongs"),
        ([], "the document: .* where an object belongs"),
    ],
)
def test_a_malformed_pod_is_refused_with_the_path_of_what_is_wrong(pod: Any, words: str) -> None:
    with pytest.raises(MalformedObject, match=words):
        read_pod(pod)
