"""The pod that is created is the case's, and cannot harm anybody."""

from dataclasses import replace

import pytest
from tests.builders import node_state
from tests.selftest.seen import OWN, choice_of, node_of

from topomend.model.nodes.node import Taint
from topomend.selftest.cases import Case
from topomend.selftest.manifest import namespace_manifest, pod_manifest
from topomend.wire.group import RELAUNCH_ANNOTATION, SELFTEST_LABEL, STEER_LABEL
from topomend.wire.pods.bound_pod import read_bound_pod

STATE = node_state(
    "sockets:2 cores:4 threads:2 memory:8Gi hugepages-2Mi:64 device:vendor.com/gpu@0=1,1=1", memory_manager="Static"
)
CASES = choice_of(STATE).cases


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_manifest_asks_for_what_the_case_has(case: Case) -> None:
    bound = read_bound_pod(pod_manifest(case, node_of(STATE), OWN, "any"))
    assert bound.pod.containers == case.containers
    assert (bound.key, bound.node) == ((OWN, case.name), STATE.name)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_ends_by_itself_is_left_alone_by_topomend_and_can_be_found(case: Case) -> None:
    content = pod_manifest(case, node_of(STATE), OWN, "any")
    assert content["spec"]["activeDeadlineSeconds"] > 0
    assert content["metadata"]["annotations"] == {RELAUNCH_ANNOTATION: "false"}
    assert content["metadata"]["labels"] == {SELFTEST_LABEL: "true"}


def test_it_tolerates_the_taints_for_which_a_kubelet_refuses_it_and_no_others() -> None:
    taints = (Taint("dedicated", "NoExecute", "gpu"), Taint("dedicated", "NoSchedule", "gpu"))
    content = pod_manifest(CASES[0], replace(node_of(STATE), taints=taints), OWN, "any")
    assert content["spec"]["tolerations"] == [
        {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute"}
    ]


def test_its_namespace_is_not_steered_and_gets_a_name_of_its_own() -> None:
    metadata = namespace_manifest()["metadata"]
    assert STEER_LABEL not in metadata["labels"]
    assert "name" not in metadata
    assert metadata["annotations"][RELAUNCH_ANNOTATION] == "false"
