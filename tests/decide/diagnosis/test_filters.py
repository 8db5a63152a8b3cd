from dataclasses import replace

import pytest

from topomend.decide.diagnosis.filters import filter_node, insufficient_resource
from topomend.model.nodes.node import Node, Taint
from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, requests_of
from topomend.model.pods.scheduling import NodeSelectorTerm, Placement, Requirement, Toleration

NODE = Node(
    "n", labels={"kubernetes.io/hostname": "n", "zone": "a", "cores": "8"}, allocatable={"cpu": 4000, "pods": 110000}
)
POD = Pod("ns", "p", "1", (Container("main", ContainerKind.APP, Resources({"cpu": 1000}, {})),))


def why(node: Node = NODE, **placement: object) -> str:
    return filter_node(node, Placement(**placement), requests_of(POD))  # type: ignore[arg-type]


def requiring(key: str, operator: str, values: tuple[str, ...]) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm((Requirement(key, operator, values),)),)


def test_a_plain_pod_may_go_to_a_plain_node() -> None:
    assert why() == ""


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (replace(NODE, ready=False), "NotReady"),
        (replace(NODE, unschedulable=True), "Unschedulable"),
        (replace(NODE, taints=(Taint("gpu", "NoSchedule"),)), "Taint"),
        (replace(NODE, taints=(Taint("gpu", "NoExecute"),)), "Taint"),
        (replace(NODE, taints=(Taint("gpu", "PreferNoSchedule"),)), ""),
        (replace(NODE, labels={}), "NoHostnameLabel"),
        (replace(NODE, allocatable={"cpu": 999, "pods": 110000}), "InsufficientResources"),
    ],
)
def test_what_the_scheduler_would_filter_is_no_candidate(node: Node, reason: str) -> None:
    assert why(node) == reason


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "Equal", "h100"), True),
        (Toleration("gpu", "Equal", "a100"), False),
        (Toleration("gpu", "Exists", effect="NoExecute"), False),
        (Toleration(operator="Exists"), True),
        (Toleration("", "Equal", "h100"), True),  # the API server refuses it
        (Toleration("other", "Exists"), False),
    ],
)
def test_tolerations_match_taints_as_the_scheduler_has_it(toleration: Toleration, tolerated: bool) -> None:
    tainted = replace(NODE, taints=(Taint("gpu", "NoSchedule", "h100"),))
    assert why(tainted, tolerations=(toleration,)) == ("" if tolerated else "Taint")


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("rack", "In", ("",), False),
        ("zone", "NotIn", ("b",), True),
        ("rack", "NotIn", ("b",), True),
        ("zone", "Exists", (), True),
        ("rack", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("cores", "Gt", ("7",), True),
        ("cores", "Lt", ("8",), False),
        ("zone", "Gt", ("7",), False),
        ("cores", "Near", ("7",), False),
    ],
)
def test_required_affinity_is_read_as_the_scheduler_reads_it(
    key: str, operator: str, values: tuple[str, ...], matches: bool
) -> None:
    assert why(terms=requiring(key, operator, values)) == ("" if matches else "NodeAffinity")


def test_one_matching_term_is_enough_and_an_empty_one_matches_nothing() -> None:
    other = NodeSelectorTerm((Requirement("zone", "In", ("b",)),))
    by_name = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n",)),))
    assert why(terms=(other, by_name)) == ""
    assert why(terms=(NodeSelectorTerm(), other)) == "NodeAffinity"


def test_of_each_volume_one_term_must_match() -> None:
    here, there = requiring("zone", "In", ("a",)), requiring("zone", "In", ("b",))
    assert why(volumes=(here, (*there, *here))) == ""
    assert why(volumes=(here, there)) == "VolumeNodeAffinity"
    assert why(volumes=((),)) == "VolumeNodeAffinity"
    assert why(volumes=None) == "", "what is not known excludes no node"


def test_a_volume_is_never_asked_about_the_name_of_a_node() -> None:
    """Source: component-helpers/storage/volume/helpers.go:CheckNodeAffinity, which knows labels alone."""
    by_name = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n",)),))
    assert why(terms=(by_name,)) == ""
    assert why(volumes=((by_name,),)) == "VolumeNodeAffinity"


def test_a_node_selector_must_match_whole() -> None:
    assert why(node_selector={"zone": "a"}) == ""
    assert why(node_selector={"zone": "a", "rack": "1"}) == "NodeSelector"


GPU = Pod("ns", "p", "1", (Container("main", ContainerKind.APP, Resources({"cpu": 1000, "vendor.com/gpu": 1000}, {})),))


@pytest.mark.parametrize(
    ("by_claim", "own", "reason"),
    [
        (frozenset(), None, "InsufficientResources"),
        (frozenset({"vendor.com/gpu"}), None, ""),
        (frozenset({"vendor.com/gpu"}), 0, ""),
        (frozenset({"vendor.com/gpu"}), 1000, ""),
        (frozenset({"vendor.com/gpu"}), 500, "InsufficientResources"),
        (frozenset({"vendor.com/other"}), None, "InsufficientResources"),
    ],
    ids=["no class", "by claim", "none of its own", "its own", "too few of its own", "another resource"],
)
def test_a_resource_that_a_device_class_maps_is_the_schedulers_to_judge_where_the_node_has_none(
    by_claim: frozenset[str], own: int | None, reason: str
) -> None:
    owned = {} if own is None else {"vendor.com/gpu": own}
    node = replace(NODE, by_claim=by_claim, allocatable={**NODE.allocatable, **owned})
    assert filter_node(node, Placement(), requests_of(GPU)) == reason
    assert insufficient_resource(node, GPU, []) == ("vendor.com/gpu" if reason else "")


def test_what_other_pods_ask_counts_against_a_nodes_totals() -> None:
    assert insufficient_resource(NODE, POD, [requests_of(POD)] * 3) == ""
    assert insufficient_resource(NODE, POD, [requests_of(POD)] * 4) == "cpu"
    assert insufficient_resource(NODE, POD, map(requests_of, [POD, POD, replace(POD, overhead={"cpu": 100})])) == "cpu"
    assert (
        insufficient_resource(replace(NODE, allocatable={"cpu": 4000, "pods": 1000}), POD, [requests_of(POD)]) == "pods"
    )
