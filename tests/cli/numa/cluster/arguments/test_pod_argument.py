"""The pod that a verb is about, where a file describes it or a word names it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import pod_manifest

from topomend.cli.numa.cluster.arguments.pod_argument import (
    RequestedPod,
    pod_of_file,
    pods_of_file,
    read_requested,
    short_name,
)
from topomend.cli.output.failures import BadInput
from topomend.model.narrowing import Narrowing
from topomend.model.pods.scheduling import NodeSelectorTerm, Requirement
from topomend.relaunch.manifest import launch
from topomend.wire.group import NARROWED, RELEASED_ANNOTATION
from topomend.wire.pods.scheduling import read_watched_pod

POD = pod_manifest("train", "cpu=3 memory=1Gi")
TEMPLATE = {"metadata": {"labels": {"app": "train"}}, "spec": POD["spec"]}


def read(tmp_path: Path, *documents: Any) -> RequestedPod:
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return pod_of_file(str(file), None)


@pytest.mark.parametrize(("word", "name"), [("train", "train"), ("pod/train", "train"), ("po/train", "train")])
def test_a_pod_is_named_as_kubectl_lets_one_name_it(word: str, name: str) -> None:
    assert short_name(word) == name


def test_another_kind_is_no_pod() -> None:
    with pytest.raises(BadInput, match="deploy/train is not a pod: name one as pod/NAME"):
        short_name("deploy/train")


@pytest.mark.parametrize(
    "document",
    [
        POD,
        {"kind": "Deployment", "metadata": {"name": "train"}, "spec": {"template": TEMPLATE}},
        {
            "kind": "CronJob",
            "metadata": {"name": "train"},
            "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}},
        },
    ],
    ids=["a pod", "a workload", "a workload of workloads"],
)
def test_the_pod_of_a_file_is_the_one_that_it_describes_or_would_create(
    document: dict[str, Any], tmp_path: Path
) -> None:
    asked = read(tmp_path, document).pod
    assert (asked.name, asked.containers[0].resources.requests["cpu"]) == ("train", 3000)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ((), "nothing, and no Pod or workload; give at least one"),
        ((POD, POD), "2 pods or workloads (Pod train, Pod train); give exactly one"),
        ((["train"],), "a document is no object, such as a Pod"),
        (({"kind": "ConfigMap"},), "ConfigMap, and no Pod or workload; give at least one"),
        (({"kind": 7},), "7, and no Pod or workload"),
        (({"kind": "PodList", "items": 7},), "items: 7 where a list belongs"),
        (({"kind": "Deployment", "spec": 7},), "spec"),
        (({"kind": "Pod", "spec": {"containers": 7}},), "spec.containers"),
    ],
)
def test_a_file_that_describes_no_single_pod_is_refused_with_what_belongs_there(
    documents: tuple[Any, ...], words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as failure:
        read(tmp_path, *documents)
    assert str(failure.value).startswith(f"-f {tmp_path}")
    assert words in str(failure.value)


def test_the_pods_of_any_list_and_of_json_one_after_another_are_read(tmp_path: Path) -> None:
    listed = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": POD["metadata"], "spec": POD["spec"]}]}
    workload = {"metadata": {"name": "web"}, "spec": {"template": TEMPLATE}}
    workloads = {"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [workload]}
    file = tmp_path / "all.json"
    file.write_text("\n".join(map(json.dumps, [listed, {"kind": "List", "items": [workloads]}, POD])))
    assert [each.shown for each in pods_of_file(str(file), None)] == ["Pod train", "Deployment web", "Pod train"]


def test_null_is_an_absent_field_and_in_a_map_an_empty_value(tmp_path: Path) -> None:
    spec = POD["spec"] | {"affinity": None, "nodeSelector": {"disk": None}}
    asked = read(tmp_path, {"kind": "Pod", "metadata": None, "spec": spec, "status": None})
    assert asked.content == {"kind": "Pod", "spec": POD["spec"] | {"nodeSelector": {"disk": None}}}
    assert asked.placement.node_selector == {"disk": ""}


@pytest.mark.parametrize(
    ("conditions", "words"),
    [(7, "status.conditions: 7 where a list belongs"), (["x"], "status.conditions[0]: 'x' where an object belongs")],
)
def test_conditions_that_are_none_are_bad_input(tmp_path: Path, conditions: object, words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        read(tmp_path, POD | {"status": {"conditions": conditions}})


def test_the_nodes_that_the_operator_named_are_no_wish_of_the_user() -> None:
    zone = Requirement("zone", "In", ("a",))
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    gated = pod_manifest("train", "cpu=3 memory=1Gi", spec={"affinity": affinity}, namespace="ns", uid="1")
    narrowed = launch(read_watched_pod(gated), Narrowing(("numa-b",)))["spec"]["affinity"]
    ungated = pod_manifest(
        "train", "cpu=3 memory=1Gi", spec={"affinity": narrowed}, annotations={RELEASED_ANNOTATION: NARROWED}
    )
    assert read_requested(ungated, "pod train").placement.terms == (NodeSelectorTerm((zone,)),)
