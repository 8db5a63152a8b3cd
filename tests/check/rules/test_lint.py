"""Each trap of a configuration is named by its code and by no other; a sound configuration has none."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import pod

from topomend.check.facts import Configured
from topomend.check.finding import Finding, Subject
from topomend.check.rules.lint import correction, lint, refusals
from topomend.discover.kubelet_config.settings import settings_of
from topomend.model.machine import PCIDevice
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.shape import parse_shape
from topomend.replay.admission import admit
from topomend.replay.gates import minor_of
from topomend.replay.startup.configuration import Configuration, Host
from topomend.replay.startup.defaults import with_defaults
from topomend.replay.startup.feature_gates import FeatureGates
from topomend.replay.startup.validation import why_not_start
from topomend.wire.document import Document

SHAPE = "numa:2 cores:4 threads:2 memory:4Gi"
SOUND = {
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0,8",
    "memoryManagerPolicy": "Static",
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}


def configured(change: Mapping[str, Any], *, shape: str = SHAPE, version: str = "v1.37.2") -> Configured:
    """The sound configuration with a change. Fields that are None are taken out."""
    given = {name: value for name, value in {**SOUND, **change}.items() if value is not None}
    machine = parse_shape(shape).machine()
    gates = FeatureGates(minor_of(version), given.get("featureGates", {}))
    host = Host(sum(node.memory for node in machine.numa_nodes))
    config = Configuration(with_defaults(given, gates), gates.minor, gates, host)
    settings, wrong = settings_of(Document(given), version)
    assert wrong == []
    said = refusals(config, settings, machine, why_not_start(given, version, host=host))
    return Configured(Subject("KubeletConfiguration", "file"), NodeState("n", machine, settings), config, said)


def found(change: Mapping[str, Any], **where: str) -> dict[str, Finding]:
    return {finding.code: finding for finding in lint(configured(change, **where)).findings}


ANY_MEMORY = {"memoryManagerPolicy": None, "reservedMemory": None}
FULL_CORES = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}

TRAPS: Mapping[str, tuple[Mapping[str, Any], set[str]]] = {
    "none": ({}, set()),
    "no policy": ({**ANY_MEMORY, "topologyManagerPolicy": None, "cpuManagerPolicy": None}, {"TM404"}),
    "aligned by luck": ({"topologyManagerPolicy": "best-effort"}, {"TM213"}),
    "no CPUs to align": ({"cpuManagerPolicy": "none"}, {"TM405"}),
    "memory of any NUMA node": (ANY_MEMORY, {"TM406"}),
    "containers apart": ({"topologyManagerScope": "container"}, {"TM407"}),
    "whole cores": (FULL_CORES, {"TM408"}),
    "half a reserved core": ({**FULL_CORES, "reservedSystemCPUs": "0"}, {"TM408", "TM409"}),
    "a share of the memory": (
        {
            "evictionHard": {"memory.available": "25%"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2Gi"}}],
        },
        {"TM410"},
    ),
    "a NUMA node without CPUs left": ({"reservedSystemCPUs": "0-3,8-11"}, {"TM211"}),
    "memory that nobody reserves": ({"memoryManagerPolicy": "None"}, {"TM403", "TM406"}),
    "options that nobody reads": (
        {"topologyManagerPolicy": "none", "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}},
        {"TM213", "TM403"},
    ),
    "more memory than a NUMA node has": (
        {
            "kubeReserved": {"memory": "5Gi"},
            "reservedMemory": [
                {"numaNode": 0, "limits": {"memory": "5Gi"}},
                {"numaNode": 1, "limits": {"memory": "100Mi"}},
            ],
        },
        {"TM221"},
    ),
}


@pytest.mark.parametrize(("change", "codes"), TRAPS.values(), ids=TRAPS)
def test_each_trap_is_named_and_nothing_else(change: Mapping[str, Any], codes: set[str]) -> None:
    assert set(found(change)) == codes


@pytest.mark.parametrize(
    ("version", "refusal"),
    [
        ("v1.30.14", ("Started kubelet as runonce",)),
        ("v1.31.13", ("Started kubelet as runonce",)),
        ("v1.32.6", ("invalid configuration: runOnce (--runOnce) true, Runonce mode has been deprecated",)),
    ],
)
def test_a_kubelet_that_runs_once_and_ends_is_no_kubelet_of_a_node(version: str, refusal: tuple[str, ...]) -> None:
    """Kept from ``verify.config_oracle.live``: v1.30.14 started, served nobody, and ended."""
    said = configured({"runOnce": True, **ANY_MEMORY}, version=version).refusals
    assert len(said) == len(refusal)
    assert all(sentence.startswith(words) for sentence, words in zip(said, refusal, strict=True))
    assert configured({"runOnce": False, **ANY_MEMORY}, version=version).refusals == ()


def test_what_a_kubelet_refuses_goes_before_that_it_would_run_once() -> None:
    said = configured({"runOnce": True, "maxPods": -1, **ANY_MEMORY}, version="v1.30.14").refusals
    assert said
    assert "Started kubelet as runonce" not in said


def test_the_cure_of_a_kubelet_that_runs_once_names_the_field() -> None:
    assert found({"runOnce": True, **ANY_MEMORY}, version="v1.30.14")["TM401"].cure.startswith("take runOnce out")


def test_on_one_numa_node_nothing_can_be_apart() -> None:
    change = {**ANY_MEMORY, "topologyManagerScope": "container", "reservedSystemCPUs": "0,4"}
    assert found(change, shape="cores:4 threads:2 memory:4Gi") == {}


REFUSED: Mapping[str, tuple[Mapping[str, Any], str, str, str]] = {
    "no reserved CPU": (
        {"reservedSystemCPUs": None}, SHAPE, "unable to determine reserved CPU resources", "set reservedSystemCPUs"
    ),
    "a CPU that the machine lacks": (
        {"reservedSystemCPUs": "0,99"}, SHAPE, "reserved-cpus: 0,99 is not a subset of online-cpus: 0-15", "from 0-15"
    ),
    "memory that does not add up": (
        {"kubeReserved": {"memory": "1Mi"}}, SHAPE, 'the total amount "100Mi" of type "memory"', "101Mi in all"
    ),
    "a NUMA node that the machine lacks": (
        {"reservedMemory": [{"numaNode": 2, "limits": {"memory": "100Mi"}}]},
        SHAPE, "references a NUMA node 2", "100Mi in all",
    ),
    "no memory reserved": (
        {"reservedMemory": None, "evictionHard": {"memory.available": "0%"}},
        SHAPE, "you should specify the system reserved memory", "set kubeReserved",
    ),
    "too many NUMA nodes": (
        {}, "sockets:2 numa:8 cores:2 memory:1Gi", "more than 8 NUMA Nodes", '{max-allowable-numa-nodes: "16"}'
    ),
    "a gate that is gone": (
        {"featureGates": {"CPUManager": True}}, SHAPE, "unrecognized feature gate", "take the gate out"
    ),
    "more than the machine has": (
        {**ANY_MEMORY, "kubeReserved": {"memory": "9Gi"}},
        SHAPE, 'Resource "memory" has a reservation of 9316Mi but capacity of 8Gi', "sentence is the kubelet's own",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "shape", "sentence", "cure"), REFUSED.values(), ids=REFUSED)
def test_a_refused_start_has_the_kubelets_sentence_and_a_cure(
    change: Mapping[str, Any], shape: str, sentence: str, cure: str
) -> None:
    error = found(change, shape=shape)["TM401"]
    assert sentence in error.message
    assert cure in error.cure


def test_an_option_that_a_release_lacks_is_told_with_its_history() -> None:
    change = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    assert "TM401" not in found(change, version="v1.33.0")
    for version, sentence in (
        ("v1.31.0", "unknown CPU Manager Policy option"),
        ("v1.32.0", "Alpha-level Options not enabled"),
    ):
        error = found(change, version=version)["TM401"]
        assert sentence in error.message
        assert "became alpha in v1.32, beta in v1.33, stable in v1.35" in error.cure


def test_with_the_printed_memory_the_kubelet_starts() -> None:
    wrong = configured({"kubeReserved": {"memory": "1Mi"}, "systemReserved": {"memory": "7"}})
    block = correction(wrong)
    assert block
    reserved = [{"numaNode": each.numa_node, "limits": {"memory": str(each.size)}} for each in block]
    right = configured(
        {"kubeReserved": {"memory": "1Mi"}, "systemReserved": {"memory": "7"}, "reservedMemory": reserved}
    )
    assert right.refusals == ()
    assert correction(right) is None


def test_nothing_is_corrected_by_an_amount_that_the_kubelet_refuses() -> None:
    assert correction(configured({"kubeReserved": {"memory": "-5Mi"}})) is None
    assert correction(configured({"kubeReserved": {"memory": "1500m"}})) == ()


def test_the_other_threads_of_reserved_cores_are_lost_as_replay_has_it() -> None:
    """The trap TM409: no number of pods gets the CPU beside the reserved one."""
    state = configured({**FULL_CORES, "reservedSystemCPUs": "0", "topologyManagerPolicy": "none"}).state
    given, number = 0, 0
    while True:
        verdict, state = admit(state, pod(f"p{number}", "cpu=2 memory=1Mi"))
        if not verdict.admitted:
            break
        given, number = given | verdict.containers[0].cpus, number + 1
    assert given == state.machine.cpus & ~(1 << 0 | 1 << 8)
    assert verdict.reason == "SMTAlignmentError"


def test_reserved_cpus_beside_accelerators_are_told() -> None:
    its = configured({"reservedSystemCPUs": "0-1,8-9"})
    gpu = PCIDevice("0000:01:00.0", 0x030200, 0x10DE, 1, numa_node=0)
    machine = replace(its.state.machine, pci_devices=(gpu,))
    found = lint(replace(its, state=replace(its.state, machine=machine))).findings
    assert [finding.code for finding in found] == ["TM212"]


def test_of_fields_that_could_not_be_read_nothing_else_is_said() -> None:
    its = replace(
        configured({"topologyManagerPolicy": "none"}), refusals=("x: 3 where a string belongs",), is_read=False
    )
    report = lint(its)
    assert [(each.code, each.cure) for each in report.findings] == [("TM401", "give the field a value of that kind")]
    assert correction(its) is None
