"""A PerformanceProfile becomes the KubeletConfiguration that the Node Tuning Operator makes of it."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from topomend.cli.input.performance_profile import of_profile
from topomend.cli.main import main
from topomend.cli.output.failures import BadInput
from topomend.discover.documents.value import plain_value

CORE = """apiVersion: performance.openshift.io/v2
kind: PerformanceProfile
metadata: {name: core}
spec:
  cpu: {reserved: "0,18", isolated: "1-17"}
  numa: {topologyPolicy: single-numa-node}
"""


def made(text: str) -> dict[str, Any]:
    read = of_profile("file", text.encode())
    assert read is not None
    assert read.file is not None
    made: dict[str, Any] = plain_value(read.file.text.value)
    return made


def with_snippet(content: object, text: str = CORE) -> str:
    profile = yaml.safe_load(text)
    profile["metadata"]["annotations"] = {"kubeletconfig.experimental": json.dumps(content)}
    return json.dumps(profile)


def test_a_strict_profile_reserves_on_numa_node_0_what_is_kept() -> None:
    assert made(CORE) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "cpuManagerReconcilePeriod": "5s",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "reservedSystemCPUs": "0,18",
        "topologyManagerPolicy": "single-numa-node",
        "memoryManagerPolicy": "Static",
        "kubeReserved": {"memory": "500Mi"},
        "systemReserved": {"memory": "500Mi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1100Mi"}}],
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "10%",
            "imagefs.available": "15%",
            "nodefs.inodesFree": "5%",
        },
    }


def test_without_a_topology_policy_it_is_best_effort_without_a_memory_manager() -> None:
    content = made(CORE.replace("  numa: {topologyPolicy: single-numa-node}\n", ""))
    assert content["topologyManagerPolicy"] == "best-effort"
    assert not {"memoryManagerPolicy", "reservedMemory", "cpuManagerPolicyOptions"} & content.keys()


def test_the_annotation_sets_what_the_profile_does_not() -> None:
    snippet = {
        "topologyManagerPolicy": "none",
        "topologyManagerScope": "pod",
        "systemReserved": {"memory": "1Gi"},
        "evictionHard": {"memory.available": "200Mi"},
        "cpuManagerPolicyOptions": {"full-pcpus-only": "false"},
    }
    content = made(with_snippet(snippet))
    assert (content["topologyManagerPolicy"], content["topologyManagerScope"]) == ("single-numa-node", "pod")
    assert content["reservedMemory"] == [{"numaNode": 0, "limits": {"memory": "1724Mi"}}]
    assert content["cpuManagerPolicyOptions"] == {"full-pcpus-only": "false"}
    assert content["evictionHard"]["nodefs.available"] == "10%"


def test_shared_cpus_are_reserved_where_cpus_are_mixed() -> None:
    shared = CORE.replace('isolated: "1-17"', 'isolated: "2-17", shared: "1"')
    assert made(shared)["reservedSystemCPUs"] == "0,18"
    assert made(f"{shared}  workloadHints: {{mixedCpus: true}}\n")["reservedSystemCPUs"] == "0-1,18"


WRONG = {
    "another version": (CORE.replace("/v2", "/v1"), "where performance.openshift.io/v2 belongs"),
    "a policy of another type": (CORE.replace("single-numa-node", "[1]"), "spec.numa.topologyPolicy: "),
    "no cpu object": (CORE.replace('{reserved: "0,18", isolated: "1-17"}', "3"), "spec.cpu: 3 where an object belongs"),
    "a snippet that is no JSON": (
        CORE.replace("{name: core}", "{annotations: {kubeletconfig.experimental: '{'}}"), "is not JSON"
    ),
    "a snippet that is no object": (with_snippet([1]), "is no object of JSON"),
    "a threshold that does not add up": (with_snippet({"evictionHard": {"memory.available": "5%"}}), "makes no config"),
    "an annotation that is not read": (
        CORE.replace("{name: core}", "{annotations: {kubeletconfig.prefer-align-cpus-by-uncorecache: 'true'}}"),
        "is not read here",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_a_profile_that_cannot_be_read_is_told_with_its_field(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=r"^file: ") as raised:
        made(text)
    assert words in str(raised.value)


def test_lint_judges_a_profile() -> None:
    arguments = ["-", "--machine", "numa:2 cores:18 threads:2 memory:64Gi", "-o", "json"]
    result = CliRunner().invoke(main, ["lint", *arguments], input=CORE)
    document = json.loads(result.stdout)
    assert document["starts"] is True
    assert document["problems"][0]["object"] == {"kind": "PerformanceProfile", "namespace": None, "name": "stdin"}
    assert [each["code"] for each in document["problems"]] == ["TM409", "TM407", "TM408"]
    assert "Machine Config Operator" in document["notLookedAt"][-1]
    wrong = CliRunner().invoke(main, ["lint", *arguments], input=with_snippet({"reservedMemory": []}))
    assert [each["limits"] for each in json.loads(wrong.stdout)["reservedMemory"]] == 2 * [{"memory": "550Mi"}]
