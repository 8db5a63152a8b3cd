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


def test_pods_are_of_one_kind_by_their_content_as_by_their_questions() -> None:
    asked = list(product(PODS, PLACEMENTS))
    questions = [question_about(*each) for each in asked]
    pairs = list(product(range(len(asked)), repeat=2))
    by_content = [kind_of(*asked[one]) == kind_of(*asked[other]) for one, other in pairs]
    assert by_content == [questions[one].kind is questions[other].kind for one, other in pairs]
    assert sum(by_content) == len(asked) + 2 * len(PLACEMENTS), "a and b are alike, and each is like itself"
