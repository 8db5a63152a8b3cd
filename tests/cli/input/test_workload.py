"""The pods that a workload stands for."""

from typing import Any

import pytest

from topomend.cli.input.workload import MOST_REPLICAS, PodNames, pods_of, replicas_of, template_pod
from topomend.wire.document import MalformedObject

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "web"}, "spec": {"template": TEMPLATE, **spec}}


@pytest.mark.parametrize(
    ("content", "replicas"),
    [
        ({"kind": "Pod"}, 1),
        (workload("Deployment"), 1),
        (workload("StatefulSet", replicas=3), 3),
        (workload("ReplicaSet", replicas=0), 0),
        (workload("DaemonSet"), 1),
        (workload("Job", parallelism=4), 4),
        (workload("Job", parallelism=4, completions=2), 2),
        (workload("Job", completions=5), 1),
        ({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": TEMPLATE, "parallelism": 2}}}}, 2),
    ],
)
def test_a_workload_has_the_replicas_that_it_runs_at_a_time(content: dict[str, Any], replicas: int) -> None:
    assert replicas_of(content) == replicas


def test_its_pods_are_numbered_and_keep_labels_and_namespace() -> None:
    content = workload("Deployment", replicas=2)
    content["metadata"]["namespace"] = "prod"
    assert [pod["metadata"] for pod in pods_of(content, PodNames())] == [
        {"name": f"web-{number}", "namespace": "prod", "labels": {"app": "web"}} for number in range(2)
    ]
    assert template_pod(content)["metadata"]["name"] == "web"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (workload("Deployment", replicas=MOST_REPLICAS + 1), "spec.replicas"),
        (workload("Deployment", replicas="many"), "spec.replicas"),
        ({"kind": "ConfigMap"}, "ConfigMap has no pod template"),
        ({"kind": "Job", "spec": {"template": {"metadata": "x"}}}, "spec.template.metadata: 'x' where an object"),
        (None, "the document: missing where an object belongs"),
    ],
)
def test_what_has_no_pods_or_too_many_is_malformed(content: dict[str, Any] | None, words: str) -> None:
    with pytest.raises(MalformedObject, match=words):
        pods_of(content, PodNames())


def named(names: PodNames, *contents: dict[str, Any]) -> list[str]:
    return [pod["metadata"]["name"] for content in contents for pod in pods_of(content, names)]


def test_the_pods_of_several_workloads_of_one_name_have_names_of_their_own() -> None:
    deployment, stateful_set = workload("Deployment", replicas=2), workload("StatefulSet", replicas=1)
    assert named(PodNames(), deployment, stateful_set, stateful_set) == [
        "web-0",
        "web-1",
        "web-statefulset-0",
        "web-statefulset-1",
    ]
    elsewhere = {**deployment, "metadata": {"name": "web", "namespace": "prod"}}
    assert named(PodNames(), deployment, elsewhere) == ["web-0", "web-1"] * 2


def test_a_pod_that_the_api_server_would_name_has_a_name_of_its_own() -> None:
    generated = {"kind": "Pod", "metadata": {"generateName": "x-", "labels": {"app": "x"}}}
    named_pod = {"kind": "Pod", "metadata": {"name": "x-1"}}
    assert named(PodNames(), generated, named_pod, generated) == ["x-0", "x-1", "x-2"]
    assert pods_of(generated, PodNames())[0]["metadata"]["labels"] == {"app": "x"}
    assert named(PodNames(), {"kind": "Pod"}, {"kind": "Pod"}) == ["pod-0", "pod-1"]


def test_a_made_up_name_is_none_of_a_pod_on_the_node() -> None:
    there = [("default", "web-0"), ("default", "x-0")]
    assert named(PodNames(there), workload("Deployment")) == ["web-deployment-0"]
    assert named(PodNames(there), {"kind": "Pod", "metadata": {"generateName": "x-"}}) == ["x-1"]


def test_what_really_has_the_name_of_a_pod_on_the_node_keeps_it() -> None:
    there = [("default", "web-0")]
    assert named(PodNames(there), workload("StatefulSet")) == ["web-0"]
    assert named(PodNames(there), {"kind": "Pod", "metadata": {"name": "web-0"}}) == ["web-0"]
