"""Each cause of a refusal, under every policy and scope where it can occur, and the reported cases of the docs."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import node_state, pod

from topomend.explain.cause import Cause, Kind
from topomend.explain.explanation import cause_of, explain
from topomend.explain.remedy import remedy_of
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.replay.admission import admit

DOCS = Path(__file__).parents[2] / "docs"

EIGHT = "sockets:2 numa:4 cores:8 threads:2 memory:64Gi"
GPUS = "sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=2,1=2"
SMT = "sockets:1 cores:4 threads:2 memory:8Gi"
KINDS_OF_DEVICES = [f"example.com/d{number}" for number in range(5)]
FIVE_DEVICES = " ".join(f"device:{kind}@" + ",".join(f"{numa}=1" for numa in range(8)) for kind in KINDS_OF_DEVICES)

NINE_GPUS = "cores:8 memory:32Gi device:vendor.com/gpu@0=2,1=2,2=2"
WIDER = "max-allowable-numa-nodes=16"
OF_THE_FIT_CHECK = {Kind.NOT_ENOUGH_IN_TOTAL, Kind.NODE_DOES_NOT_MATCH}
"""Causes that need more than the managers: tests/replay/test_simulation.py."""

Scenario = Callable[[str, str], tuple[NodeState, Pod]]

ALL, SCOPED = ("none", "best-effort", "restricted", "single-numa-node"), ("container", "pod")
ALIGNING = ("restricted", "single-numa-node")


def on(shape: str, *containers: str, running: tuple[Pod, ...] = (), **settings: str) -> Scenario:
    """A pod of ``containers`` on a node of this shape that holds ``running`` already."""

    def scenario(policy: str, scope: str) -> tuple[NodeState, Pod]:
        return node_state(shape, policy, scope=scope, pods=running, **settings), pod("p", *containers)

    return scenario


def with_pod_level(resources: str, *containers: str, memory_manager: str = "None") -> Scenario:
    """A pod with ``resources`` of its own, on a node whose managers allocate those."""

    def scenario(policy: str, scope: str) -> tuple[NodeState, Pod]:
        gates = "PodLevelResources PodLevelResourceManagers"
        shape = "sockets:2 cores:4 memory:8Gi"
        state = node_state(shape, policy, scope=scope, gates=gates, memory_manager=memory_manager)
        return state, pod("p", *containers, resources=resources)

    return scenario


def with_devices(change: Callable[[int], dict[str, object]], *containers: str) -> Scenario:
    """The same on a node whose devices were changed, each by its number."""

    def scenario(policy: str, scope: str) -> tuple[NodeState, Pod]:
        state = node_state(GPUS, policy, scope=scope)
        devices = tuple(
            replace(device, **change(number))  # type: ignore[arg-type]
            for number, device in enumerate(state.devices)
        )
        return replace(state, devices=devices), pod("p", *containers)

    return scenario


TABLE: list[tuple[Kind, tuple[str, ...], tuple[str, ...], Scenario, str]] = [
    (
        Kind.NOT_ENOUGH_FREE,
        ("single-numa-node",),
        SCOPED,
        on(
            "sockets:2 cores:4 memory:8Gi",
            "cpu=3 memory=1Gi",
            running=(pod("a", "cpu=2 memory=1Gi"), pod("b", "cpu=2 memory=1Gi")),
        ),
        "cpu requests 3 and fits no NUMA node: free 1 on NUMA 0, 2 on NUMA 1, lacks 1",
    ),
    (
        Kind.NOT_ENOUGH_FREE,
        ("none", "best-effort"),
        SCOPED,
        on("sockets:2 cores:4 memory:8Gi", "cpu=8 memory=1Gi"),
        "cpu requests 8, free 7 in all: the node has too few free CPUs",
    ),
    (
        Kind.NOT_ENOUGH_FREE,
        ("none", "best-effort"),
        SCOPED,
        on(GPUS, "cpu=1 memory=1Gi vendor.com/gpu=5"),
        "too few healthy devices are free",
    ),
    (
        Kind.NOT_ENOUGH_FREE,
        ("none", "best-effort", "restricted"),
        SCOPED,
        on("sockets:2 cores:4 memory:8Gi", "cpu=1 memory=17Gi", memory_manager="Static"),
        "have that much free",
    ),
    (
        Kind.LARGER_THAN_A_NUMA_NODE,
        ("single-numa-node",),
        SCOPED,
        on("sockets:2 cores:4 memory:8Gi", "cpu=5 memory=1Gi"),
        "lacks 1; even empty no NUMA node has more than 4",
    ),
    (
        Kind.RESERVED_CPUS,
        ALIGNING,
        SCOPED,
        on("sockets:1 cores:4 memory:8Gi", "cpu=4 memory=1Gi"),
        "enough CPUs if none were reserved for the system",
    ),
    (
        Kind.RESERVED_MEMORY,
        ("single-numa-node",),
        SCOPED,
        on("sockets:2 cores:4 memory:8Gi", "cpu=1 memory=8Gi", memory_manager="Static", reserved_memory="512Mi,512Mi"),
        "the rest is reserved for the system",
    ),
    (
        Kind.MEMORY_GROUP,
        ("restricted",),
        SCOPED,
        on(
            "sockets:2 cores:4 memory:8Gi",
            "cpu=1 memory=2Gi",
            running=(pod("wide", "cpu=5 memory=9Gi"),),
            memory_manager="Static",
        ),
        "NUMA 0,1 is a group of the Memory Manager",
    ),
    (
        Kind.MEMORY_GROUP,
        ("best-effort", "restricted"),
        SCOPED,
        on(
            "sockets:2 cores:4 memory:8Gi",
            "cpu=5 memory=9Gi",
            running=(pod("a", "cpu=1 memory=4Gi"),),
            memory_manager="Static",
        ),
        "pinned memory is one by one",
    ),
    (
        Kind.PREFERENCES_DIFFER,
        ("restricted",),
        SCOPED,
        on(EIGHT, "cpu=24 memory=20Gi", memory_manager="Static"),
        "cpu (24) prefers 2, memory (20Gi) prefers 1",
    ),
    (
        Kind.DIFFERENT_NUMA_NODES,
        ALIGNING,
        SCOPED,
        on("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1", "cpu=4 memory=1Gi vendor.com/gpu=1"),
        "vendor.com/gpu fits NUMA 0 only, cpu fits NUMA 1 only",
    ),
    (
        Kind.PREFERRED_BY_NONE,
        ("restricted",),
        SCOPED,
        on(
            "sockets:2 cores:4 memory:8Gi",
            "cpu=3 memory=1Gi",
            running=(pod("a", "cpu=2 memory=1Gi"), pod("b", "cpu=2 memory=1Gi")),
        ),
        "more NUMA nodes together have it, but 1 could hold it",
    ),
    (
        Kind.INIT_CONTAINERS,
        ALIGNING,
        ("container",),
        on("sockets:2 cores:4 memory:8Gi", "init cpu=2 memory=1Gi", "cpu=4 memory=1Gi"),
        "must include NUMA 0, where its init containers left theirs",
    ),
    (
        Kind.INIT_CONTAINERS,
        ALL,
        ("container",),
        on(SMT, "init cpu=4 memory=1Gi", "cpu=4 memory=1Gi", cpu_options="full-pcpus-only=true"),
        "CPUs that its init containers took stay with the pod",
    ),
    (
        Kind.POD_SCOPE,
        ("single-numa-node",),
        ("pod",),
        on("sockets:2 cores:4 memory:8Gi", "cpu=3 memory=1Gi", "cpu=3 memory=1Gi"),
        "its containers together request 6 cpu",
    ),
    (
        Kind.PART_OF_A_CORE,
        ALL,
        SCOPED,
        on(SMT, "cpu=3 memory=1Gi", cpu_options="full-pcpus-only=true"),
        "option full-pcpus-only gives whole cores",
    ),
    (
        Kind.NO_FREE_CORES,
        ALL,
        SCOPED,
        on(
            SMT,
            "cpu=2 memory=1Gi",
            running=(pod("a", "cpu=4 memory=1Gi"),),
            cpu_options="full-pcpus-only=true",
            reserved_cpus="0,1",
        ),
        "counts cores of which no CPU is taken or reserved",
    ),
    (
        Kind.EMPTY_SHARED_POOL,
        ("best-effort", "restricted", "single-numa-node"),
        ("pod",),
        with_pod_level("cpu=2 memory=2Gi", "cpu=2 memory=1Gi", ""),
        "leaving no cpus for shared containers: containers without exclusive resources would have nothing left",
    ),
    (
        Kind.EMPTY_SHARED_POOL,
        ("best-effort", "restricted", "single-numa-node"),
        ("pod",),
        with_pod_level("cpu=3 memory=1Gi", "cpu=2 memory=1Gi", "", memory_manager="Static"),
        "leaving no memory for shared containers: containers without exclusive resources would have nothing left",
    ),
    (
        Kind.DEVICE_UNHEALTHY,
        ALIGNING,
        SCOPED,
        with_devices(lambda number: {"healthy": number % 2 == 0}, "cpu=1 memory=1Gi vendor.com/gpu=2"),
        "unhealthy 1 on NUMA 0, 1 on NUMA 1",
    ),
    (
        Kind.DEVICE_NOT_BACK,
        ALL,
        SCOPED,
        with_devices(lambda _: {"healthy": False}, "cpu=1 memory=1Gi vendor.com/gpu=1"),
        "plugin is not back yet",
    ),
    (
        Kind.DEVICE_WITHOUT_NUMA_NODE,
        ALIGNING,
        SCOPED,
        with_devices(lambda _: {"numa_nodes": (-1,)}, "cpu=1 memory=1Gi vendor.com/gpu=1"),
        "4 of 4 stand on no NUMA node that the machine has",
    ),
    (
        Kind.TOO_MANY_NUMA_NODES,
        ("best-effort", "restricted", "single-numa-node"),
        SCOPED,
        on("sockets:9 cores:2 memory:8Gi", "cpu=1 memory=1Gi"),
        "set option max-allowable-numa-nodes to 9 or more",
    ),
    (
        Kind.KUBELET_WOULD_NOT_START,
        ALL,
        SCOPED,
        on("sockets:2 cores:2 memory:8Gi", "cpu=1 memory=1Gi", cpu_options="no-such-option=true"),
        "correct its configuration",
    ),
    (
        Kind.KUBELET_WOULD_HANG,
        ("best-effort", "restricted"),
        SCOPED,
        on(f"numa:8 cores:4 {FIVE_DEVICES}", "cpu=2 memory=1Gi " + " ".join(f"{kind}=1" for kind in KINDS_OF_DEVICES)),
        "request fewer kinds of aligned resources",
    ),
    (
        Kind.KUBELET_WOULD_CRASH,
        ("best-effort", "restricted", "single-numa-node"),
        SCOPED,
        on("sockets:2 cores:2 memory:8Gi", "cpu=1 memory=1Gi hugepages-2Mi=2Mi", memory_manager="Static"),
        "has no hugepages-2Mi",
    ),
    (
        Kind.MANAGER_ERROR,
        ALL,
        SCOPED,
        on("sockets:2 cores:2 memory:8Gi", "cpu=1 memory=1000000500m", memory_manager="Static"),
        "request a whole number of bytes",
    ),
]


@pytest.mark.parametrize(
    ("kind", "policy", "scope", "scenario", "words"),
    [
        pytest.param(kind, policy, scope, scenario, words, id=f"{kind.value}-{policy}-{scope}-{number}")
        for number, (kind, policies, scopes, scenario, words) in enumerate(TABLE)
        for policy in policies
        for scope in scopes
        if policy != "none" or scope == "container"
    ],
)
def test_the_cause_follows_from_the_decision(
    kind: Kind, policy: str, scope: str, scenario: Scenario, words: str
) -> None:
    state, asked = scenario(policy, scope)
    verdict, _ = admit(state, asked)
    assert not verdict.admitted
    cause = cause_of(verdict, state, asked)
    assert (cause.kind, words in cause.text) == (kind, True), cause
    assert explain(verdict, state, asked).startswith(f"{state.name} refuses ")


@pytest.mark.parametrize("containers", ["cpu=4 memory=40Gi", "cpu=10 memory=4Gi", "cpu=2 memory=4Gi vendor.com/gpu=3"])
@pytest.mark.parametrize("numa_nodes", [9, 11, 16])
def test_many_empty_numa_nodes_are_explained_as_eight_are(numa_nodes: int, containers: str) -> None:
    asked = pod("p", containers)

    def cause(count: int) -> Cause:
        state = node_state(
            f"numa:{count} {NINE_GPUS}",
            "restricted",
            options=WIDER,
            memory_manager="Static",
            reserved_memory="100Mi",
        )
        return cause_of(admit(state, asked)[0], state, asked)

    assert cause(numa_nodes) == cause(8)
    assert cause(numa_nodes).kind is Kind.PREFERENCES_DIFFER


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("v1.31.0", "set option max-allowable-numa-nodes to 9 or more"),
        ("v1.30.14", "allows more, from 1.31 on and with feature gate TopologyManagerPolicyBetaOptions"),
    ],
)
def test_the_option_for_more_numa_nodes_is_that_of_the_kubelets_version(version: str, words: str) -> None:
    state, asked = node_state("sockets:9 cores:2 memory:8Gi", version=version), pod("p", "cpu=1 memory=1Gi")
    assert cause_of(admit(state, asked)[0], state, asked).text.endswith(words)


def test_free_amounts_of_many_numa_nodes_are_all_said() -> None:
    state = node_state("sockets:9 cores:8 memory:32Gi", options=WIDER, pods=[pod("q", "cpu=5 memory=1Gi")])
    asked = pod("p", "cpu=9 memory=1Gi")
    text = cause_of(admit(state, asked)[0], state, asked).text
    assert "free 8 on each of NUMA 1-8, 2 on NUMA 0, lacks 1" in text


def test_a_device_of_two_numa_nodes_is_counted_once() -> None:
    state = node_state("sockets:2 cores:4 memory:8Gi device:vendor.com/gpu@0=1", "restricted")
    devices = tuple(replace(device, numa_nodes=(0, 1)) for device in state.devices)
    state, asked = replace(state, devices=devices), pod("p", "cpu=1 memory=1Gi vendor.com/gpu=2")
    text = cause_of(admit(state, asked)[0], state, asked).text
    assert "free 1 on NUMA 0+1, lacks 1; even empty the node has no more than 1" in text


def test_init_containers_are_not_blamed_where_the_pod_would_lack_the_same_without_them() -> None:
    state = node_state(SMT, "none", pods=[pod("q", "cpu=4 memory=1Gi")])
    asked = pod("p", "init cpu=1 memory=1Gi", "cpu=4 memory=1Gi")
    cause = cause_of(admit(state, asked)[0], state, asked)
    assert (cause.kind, "init containers" in cause.text) == (Kind.NOT_ENOUGH_FREE, False)


def test_what_the_containers_before_it_took_is_said() -> None:
    asked = pod("p", "cpu=3 memory=1Gi", "cpu=4 memory=1Gi", "cpu=3 memory=1Gi")
    state = node_state()
    cause = cause_of(admit(state, asked)[0], state, asked)
    assert (cause.container, "; its own containers before it took 7" in cause.text) == ("c2", True), cause.text


def test_every_kind_of_cause_has_a_row_in_the_docs_and_a_test() -> None:
    causes = (DOCS / "reference.md").read_text().partition("\n## Causes of refusals\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", causes, re.MULTILINE)
    assert sorted(rows) == sorted(kind.value for kind in Kind)
    assert {kind for kind, *_ in TABLE} == set(Kind) - OF_THE_FIT_CHECK


# Cases that users reported; the docs say what topomend answers, in these very words

FIRST_TWO = "sockets:2 cores:16 threads:2 memory:125Gi"

REPORTED: dict[str, tuple[NodeState, Pod]] = {
    "kubernetes#128669": (
        node_state(
            "sockets:2 cores:8 memory:93Gi",
            "restricted",
            memory_manager="Static",
            pods=[pod("kube-mgrr-2", "cpu=200m memory=95Gi")],
        ),
        pod("kube-mgrr-1", "cpu=1 memory=1Gi"),
    ),
    "kubernetes#128708": (
        node_state(
            "sockets:2 cores:8 memory:93Gi",
            "restricted",
            memory_manager="Static",
            pods=[pod("kube-mgrr-1", "cpu=1 memory=1Gi")],
        ),
        pod("kube-mgrr-2", "cpu=1 memory=95Gi"),
    ),
    "kubernetes#110306": (
        node_state("sockets:2 cores:16 memory:64Gi", reserved_cpus="0-2"),
        pod("nginx", "init cpu=1 memory=1Gi", "cpu=14 memory=1Gi"),
    ),
    "kubernetes#123816": (
        node_state(FIRST_TWO, pods=[pod("first", "init cpu=1 memory=1Gi", "cpu=26 memory=32Gi")]),
        pod("second", "init cpu=1 memory=1Gi", "cpu=26 memory=32Gi"),
    ),
    "kubernetes#84597": (
        node_state(
            "sockets:3 cores:6 memory:4Gi",
            "restricted",
            pods=[pod(f"web-{number}", "cpu=4 memory=1Gi") for number in range(3)],
        ),
        pod("p", "cpu=4 memory=1Gi"),
    ),
    "kubernetes#135541": (
        node_state("sockets:34 cores:1 memory:8Gi", "restricted"),
        pod("p", "cpu=1 memory=1Gi"),
    ),
    "kubernetes#125579": with_devices(lambda _: {"healthy": False}, "cpu=1 memory=1Gi vendor.com/gpu=1")(
        "single-numa-node", "container"
    ),
    "NVIDIA/k8s-device-plugin#1643": with_devices(lambda _: {"numa_nodes": (-1,)}, "cpu=1 memory=1Gi vendor.com/gpu=1")(
        "single-numa-node", "container"
    ),
    "pytorch/ci-infra#696": (
        node_state(
            "sockets:2 cores:48 threads:2 memory:1024Gi device:nvidia.com/gpu@0=4,1=4",
            pods=[
                pod("ci-1", "cpu=24 memory=200Gi nvidia.com/gpu=1"),
                pod("ci-2", "cpu=72 memory=200Gi nvidia.com/gpu=1"),
                pod("ci-3", "cpu=24 memory=200Gi nvidia.com/gpu=1"),
            ],
        ),
        pod("ci-4", "cpu=40 memory=400Gi nvidia.com/gpu=4"),
    ),
    "An empty node": (
        node_state(EIGHT, "restricted", memory_manager="Static"),
        pod("p", "cpu=24 memory=20Gi"),
    ),
    "Nine empty NUMA nodes": (
        node_state(
            f"numa:9 {NINE_GPUS}", "restricted", options=WIDER, memory_manager="Static", reserved_memory="100Mi"
        ),
        pod("p", "cpu=4 memory=40Gi"),
    ),
    "An option with which a kubelet never answers": (
        node_state(
            "sockets:4 cores:4 threads:2 memory:32Gi",
            "none",
            cpu_options="distribute-cpus-across-numa=true full-pcpus-only=true",
            reserved_cpus="0,4,8,24,12,28",
        ),
        pod("p", "cpu=22 memory=1Gi"),
    ),
}


def answer(state: NodeState, asked: Pod) -> str:
    """What the event says of the refusal."""
    verdict, _ = admit(state, asked)
    assert not verdict.admitted
    words = remedy_of(state, asked, verdict).words
    return f"{explain(verdict, state, asked)}{f'; {words}' if words else ''}"


@pytest.mark.parametrize("title", REPORTED)
def test_a_reported_case_is_explained_in_the_words_of_the_docs(title: str) -> None:
    section = (DOCS / "contribute" / "reported-cases.md").read_text().partition(f"\n## {title}\n")[2]
    written = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert written is not None
    assert " ".join(written[1].split()) == answer(*REPORTED[title])
