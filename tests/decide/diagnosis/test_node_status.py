"""One node's answer: of which kind a question is."""

from dataclasses import replace
from itertools import product

from tests.builders import pod

from topomend.decide.diagnosis.node_status import kind_of, question_about
from topomend.model.pods.pod import SINGLE_NUMA_NODE
from topomend.model.pods.scheduling import Placement, Toleration

PODS = [
    pod("a", "cpu=2 memory=1Mi"),
    pod("b", "cpu=2 memory=1Mi"),
    pod("c", "cpu=3 memory=1Mi"),
    pod("d", "request:cpu=2 memory=1Mi"),
    replace(pod("e", "cpu=2 memory=1Mi"), overhead={"cpu": 100}),
    replace(pod("f", "cpu=2 memory=1Mi"), alignment=SINGLE_NUMA_NODE),
]
PLACEMENTS = [
    Placement(),
    Placement(node_selector={"zone": "a"}),
    Placement(tolerations=(Toleration("dedicated", "gpu", "NoSchedule"),)),
]


def test_pods_are_of_one_kind_that_ask_and_may_go_alike() -> None:
    asked = list(product(PODS, PLACEMENTS))
    pairs = list(product(asked, repeat=2))
    alike = [
        one == other or (one[1] == other[1] and {one[0].name, other[0].name} == {"a", "b"}) for one, other in pairs
    ]
    assert [kind_of(*one) == kind_of(*other) for one, other in pairs] == alike


def test_a_pod_is_of_the_kind_that_it_was_however_many_others_were_asked_about_since() -> None:
    before = question_about(PODS[0], PLACEMENTS[1]).kind
    others = {question_about(pod("p", f"cpu={number} memory=1Mi"), Placement()).kind for number in range(1, 2000)}
    assert question_about(PODS[0], PLACEMENTS[1]).kind == before
    assert len(others) == 1999
