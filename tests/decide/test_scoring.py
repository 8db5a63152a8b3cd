"""The order of candidates: each key decides only between nodes that are equal by those before it."""

from dataclasses import replace

from tests.builders import node_state, pod, running, snapshot_of

from topomend.decide.diagnosis.feasibility import diagnose
from topomend.decide.scoring import score, score_of
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.pods.scheduling import Placement
from topomend.replay.admission import admit
from topomend.replay.fast_path.admission import FastPlacement

EMPTY = node_state(policy="best-effort", name="b")


def order(asked: Pod, *states: NodeState) -> list[str]:
    """The candidates of nodes that the scheduler does not reject, best first."""
    diagnosis = diagnose(snapshot_of(*states), asked, Placement())
    return [candidate.node for candidate in diagnosis.candidates]


def test_a_preferred_placement_is_better_than_any_other() -> None:
    not_preferred, preferred = FastPlacement(0, preferred=False, cpus=1), FastPlacement(0b11, preferred=True, cpus=1)
    assert score_of(EMPTY, preferred) < score_of(EMPTY, not_preferred)


def test_an_aligned_node_is_chosen_before_one_that_would_spread_the_pod() -> None:
    """The spread one would be the fuller one, and the first by name."""
    one, two = pod("one", "cpu=2 memory=1Gi"), pod("two", "cpu=2 memory=1Gi")
    spread = replace(running(EMPTY, one, two), name="a")
    assert order(pod("p", "cpu=3 memory=1Gi"), spread, EMPTY)[0] == "b"


def test_fewer_numa_nodes_are_better_then_fewer_cpus_left_on_them_then_on_the_node() -> None:
    one, both = FastPlacement(0b1, preferred=True, cpus=1), FastPlacement(0b11, preferred=True, cpus=1)
    assert score_of(EMPTY, one) < score_of(EMPTY, both)
    fuller = replace(running(EMPTY, pod("q", "cpu=2 memory=1Gi")), name="c")
    assert order(pod("p", "cpu=1 memory=1Gi"), EMPTY, fuller) == ["c", "b"]


def test_the_score_after_admission_is_the_score_predicted_before_it() -> None:
    asked = pod("p", "cpu=2 memory=1Gi")
    verdict, after = admit(EMPTY, asked)
    mask = verdict.containers[0].affinity or 0
    assert score(after, verdict) == score_of(EMPTY, FastPlacement(mask, preferred=True, cpus=2))
