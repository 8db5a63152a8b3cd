"""The groups of pods that are useful only together, by whoever defines them."""

from typing import Any

import pytest

from topomend.model.pods.scheduling import PodGroup
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.pod_group import (
    JOBSET,
    KUBERNETES,
    KUEUE,
    SCHEDULER_PLUGINS,
    VOLCANO,
    read_group_size,
    read_pod_group,
)


def group_of(spec: Any = None, **metadata: Any) -> PodGroup | None:
    return read_pod_group(Document({"metadata": metadata, "spec": spec or {}}))


@pytest.mark.parametrize(
    ("api_group", "pod"),
    [
        (KUBERNETES, {"spec": {"schedulingGroup": {"podGroupName": "train"}}}),
        (KUEUE, {"labels": {"kueue.x-k8s.io/pod-group-name": "train"}}),
        (SCHEDULER_PLUGINS, {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}),
        (JOBSET, {"labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}),
        (VOLCANO, {"annotations": {"scheduling.k8s.io/group-name": "train"}}),
    ],
)
def test_a_pod_names_its_group_as_its_owner_defines_it(api_group: str, pod: dict[str, Any]) -> None:
    assert group_of(**pod) == PodGroup(api_group, "train")


def test_a_pod_without_a_group_is_useful_alone() -> None:
    assert group_of(labels={"app": "web"}, annotations={"a": "b"}) is None


def test_kubernetes_own_group_comes_before_labels() -> None:
    group = group_of({"schedulingGroup": {"podGroupName": "own"}}, labels={"jobset.sigs.k8s.io/jobset-name": "set"})
    assert group == PodGroup(KUBERNETES, "own")


@pytest.mark.parametrize(("count", "size"), [("8", 8), ("", None), ("eight", None), ("-1", None), ("9" * 50, None)])
def test_pods_of_kueue_say_how_many_they_are(count: str, size: int | None) -> None:
    group = group_of(
        labels={"kueue.x-k8s.io/pod-group-name": "train"},
        annotations={"kueue.x-k8s.io/pod-group-total-count": count},
    )
    assert group is not None
    assert group.size == size


@pytest.mark.parametrize("name", ["x" * 254, "50%", "..", "a/b", "Train", "a_b", "-a", "a.-b", "train\n", "ä", "٣"])
def test_a_name_that_no_object_can_have_names_no_group(name: str) -> None:
    assert group_of(annotations={"scheduling.k8s.io/group-name": name}) is None


@pytest.mark.parametrize("name", ["x" * 253, "50", "a.b-c.d"])
def test_a_name_that_an_object_can_have_names_a_group(name: str) -> None:
    assert group_of(annotations={"scheduling.k8s.io/group-name": name}) == PodGroup(VOLCANO, name)


def test_a_group_without_an_object_may_have_any_name_that_a_label_may_have() -> None:
    assert group_of(labels={"kueue.x-k8s.io/pod-group-name": "Train_1"}) == PodGroup(KUEUE, "Train_1")
    assert group_of(labels={"kueue.x-k8s.io/pod-group-name": ""}) is None


@pytest.mark.parametrize("metadata", [{"labels": ["a"]}, {"annotations": {"scheduling.k8s.io/group-name": 1}}])
def test_a_malformed_pod_is_reported(metadata: dict[str, Any]) -> None:
    with pytest.raises(MalformedObject):
        group_of(**metadata)


@pytest.mark.parametrize(
    ("api_group", "spec", "size"),
    [
        (KUBERNETES, {"schedulingPolicy": {"gang": {"minCount": 4}}}, 4),
        (KUBERNETES, {"schedulingPolicy": {"basic": {}}}, 1),
        (SCHEDULER_PLUGINS, {"minMember": 3}, 3),
        (VOLCANO, {"minMember": 5}, 5),
        (VOLCANO, {}, 1),
        (JOBSET, {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4}}}, {}]}, 9),
        (JOBSET, {"replicatedJobs": [{"template": {"spec": {"parallelism": 4, "completions": 3}}}]}, 3),
    ],
)
def test_the_group_s_object_says_how_many_pods_it_needs(api_group: str, spec: dict[str, Any], size: int) -> None:
    assert read_group_size(api_group, {"spec": spec}) == size


@pytest.mark.parametrize(
    "spec",
    [
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [{"replicas": 2}]},
        {"replicatedJobs": [{"replicas": 1}, {"dependsOn": [{"name": "first"}]}]},
    ],
    ids=["in order", "by dependency"],
)
def test_of_jobs_that_start_one_after_another_the_number_is_not_known(spec: dict[str, Any]) -> None:
    assert read_group_size(JOBSET, {"spec": spec}) is None
