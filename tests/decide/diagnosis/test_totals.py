"""Totals as the scheduler counts them, in words."""

import pytest
from tests.builders import pod

from topomend.decide.diagnosis.filters import too_little_left
from topomend.decide.diagnosis.node_status import INSUFFICIENT, NodeStatus
from topomend.decide.diagnosis.totals import status_by_totals, sums_by_node, too_small
from topomend.model.nodes.node import Node
from topomend.model.pods.pod import requests_of
from topomend.model.quantity import parse_quantity


def node(**amounts: str) -> Node:
    given = {"cpu": "7", "memory": "16Gi", "pods": "3"} | amounts
    return Node("node-3", allocatable={name: parse_quantity(text) for name, text in given.items()})


BUSY = sums_by_node([("node-3", {"cpu": 3000}), ("node-3", {"cpu": 10, "memory": 1 << 30}), ("node-1", {"cpu": 9000})])[
    "node-3"
]


def test_the_pods_of_a_node_are_summed_and_counted() -> None:
    assert BUSY == {"cpu": 3010, "memory": 1 << 30, "pods": 2000}


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ("request:cpu=4", "node-3: by totals only 3990m of 4000m cpu are left"),
        ("request:memory=17Gi", "node-3: by totals only 16Gi of 17Gi memory are left"),
        ("vendor.com/gpu=1", "node-3: by totals only 0 of 1 vendor.com/gpu are left"),
    ],
)
def test_what_is_left_is_told_of_what_is_asked(container: str, words: str) -> None:
    status = status_by_totals(node(), requests_of(pod("p", container)), BUSY)
    assert status is not None
    assert (status.why, status.admits) == (words, False)


def test_a_pod_that_fits_has_no_shortage() -> None:
    assert status_by_totals(node(), requests_of(pod("p", "request:cpu=3990m")), BUSY) is None


def test_each_pod_takes_one_of_the_nodes_places() -> None:
    assert too_little_left(node(pods="2"), {}, BUSY) == "pods"


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ("request:cpu=9", "node-3: has 7 cpu for pods in all, 9 are requested"),
        ("request:cpu=7500m", "node-3: has 7000m cpu for pods in all, 7500m are requested"),
        ("vendor.com/gpu=1", "node-3: has 0 vendor.com/gpu for pods in all, 1 are requested"),
    ],
)
def test_a_node_that_is_too_small_says_how_large_it_is(container: str, words: str) -> None:
    rejected = NodeStatus("node-3", reason=INSUFFICIENT, summary=INSUFFICIENT)
    [status] = too_small({"node-3": node()}, [rejected], requests_of(pod("p", container))).values()
    assert status.why == words


def test_nodes_that_are_rejected_for_other_reasons_are_left_as_they_are() -> None:
    rejected = [NodeStatus("node-3", reason="Taint", summary="Taint"), NodeStatus("gone", reason=INSUFFICIENT)]
    assert too_small({"node-3": node()}, rejected, requests_of(pod("p", "request:cpu=9"))) == {}
