"""Which nodes are held back from a pod, by a clock that the test moves."""

from dataclasses import dataclass, replace

import pytest

from topomend.controller.back_off import BackOff
from topomend.controller.setbacks import Setbacks
from topomend.decide.candidates import survey
from topomend.model.cluster import Node, Owner, WatchedPod
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.model.shape import parse_shape
from topomend.watch import events
from topomend.watch.events import fold
from topomend.watch.view import ClusterView

STATE = NodeState("a", parse_shape("numa:2 cores:4").machine(), KubeletSettings())
WEB = Owner("ReplicaSet", "web", "web-uid")


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def watched(name: str, *, owner: Owner | None = None, attempt: int = 0, node: str = "") -> WatchedPod:
    return WatchedPod("ns", name, name, "10", Pod("ns", name, name), owner=owner, attempt=attempt, node=node)


def published(version: str) -> ClusterView:
    """Node a, whose agent has published at this version."""
    node = Node("a", labels={"kubernetes.io/hostname": "a"}, allocatable={"pods": 110000})
    return fold(fold(ClusterView(), events.NodeSeen(node)), events.Published(STATE, version))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def setbacks(clock: Clock) -> Setbacks:
    return Setbacks(BackOff(clock, lambda: 1.0))


@pytest.mark.parametrize(
    ("refused", "like", "other"),
    [
        (watched("web-1", owner=WEB), watched("web-2", owner=WEB), watched("db-1", owner=replace(WEB, uid="db"))),
        (watched("train", attempt=1), watched("train", attempt=2), watched("train-2", attempt=1)),
        (watched("train-r1", attempt=1), watched("train-r2", attempt=2), watched("other-r1", attempt=1)),
    ],
    ids=["of a controller", "of one name", "of names with a suffix"],
)
def test_a_node_is_held_back_from_the_like_of_a_pod_that_it_refused(
    refused: WatchedPod, like: WatchedPod, other: WatchedPod, setbacks: Setbacks
) -> None:
    view = published("5")
    setbacks.refused(replace(refused, node="a"))
    answers = survey(view, like.pod, like.placement, left_out=setbacks.left_out(view, like))
    assert answers.counts() == {"HeldBack": 1}
    assert answers.summary("") == "no node admits it now: 1 held back"
    assert survey(view, other.pod, other.placement, left_out=setbacks.left_out(view, other)).candidates


def test_it_is_a_candidate_again_once_it_publishes_something_new(setbacks: Setbacks) -> None:
    pod = watched("train", attempt=1)
    setbacks.refused(replace(pod, node="a"))
    assert setbacks.left(published("9"), pod) == 1
    assert setbacks.left(published("11"), pod) is None
    assert not setbacks.left_out(published("11"), pod)


def test_else_once_its_time_has_passed_which_is_twice_as_long_each_time(setbacks: Setbacks, clock: Clock) -> None:
    pod, view = watched("train", attempt=1), published("5")
    for number, seconds in enumerate((1, 2, 4)):
        for _ in range(2):  # it is seen again and again, and was refused once
            setbacks.refused(replace(pod, uid=f"uid-{number}", node="a"))
        assert setbacks.left(view, pod) == seconds
        clock.now += seconds
        assert setbacks.left(view, pod) is None
        assert not setbacks.left_out(view, pod)


def test_the_refused_pod_itself_says_which_node_refused_it(setbacks: Setbacks) -> None:
    """Of that node the survey says more than that it is held back."""
    pod = watched("train", attempt=1, node="a")
    setbacks.refused(pod)
    assert not setbacks.left_out(published("5"), pod)
