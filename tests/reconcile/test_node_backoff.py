"""Which nodes are held back from a pod, by a clock that the test moves."""

from dataclasses import dataclass, replace

import pytest

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.cache.snapshot import Snapshot
from topomend.decide.feasibility import diagnose
from topomend.model.cluster import Node, Owner, WatchedPod
from topomend.model.kubelet import KubeletSettings
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.model.shape import parse_shape
from topomend.reconcile.node_backoff import NodeBackoff
from topomend.runtime.backoff import Backoff

STATE = NodeState("a", parse_shape("numa:2 cores:4").machine(), KubeletSettings())
WEB = Owner("ReplicaSet", "web", "web-uid")


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def watched(name: str, *, owner: Owner | None = None, attempt: int = 0, node: str = "") -> WatchedPod:
    return WatchedPod("ns", name, name, "10", Pod("ns", name, name), owner=owner, attempt=attempt, node=node)


def published(version: str) -> Snapshot:
    """Node a, whose agent has published at this version."""
    node = Node("a", labels={"kubernetes.io/hostname": "a"}, allocatable={"pods": 110000})
    return apply(apply(Snapshot(), changes.NodeUpdated(node)), changes.Published(STATE, version))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node_backoff(clock: Clock) -> NodeBackoff:
    return NodeBackoff(Backoff(clock, lambda: 1.0))


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
    refused: WatchedPod, like: WatchedPod, other: WatchedPod, node_backoff: NodeBackoff
) -> None:
    snapshot = published("5")
    node_backoff.refused(replace(refused, node="a"))
    answers = diagnose(snapshot, like.pod, like.placement, excluded_nodes=node_backoff.excluded_nodes(snapshot, like))
    assert answers.counts() == {"HeldBack": 1}
    assert answers.summary("") == "no node admits it now: 1 held back"
    assert diagnose(
        snapshot, other.pod, other.placement, excluded_nodes=node_backoff.excluded_nodes(snapshot, other)
    ).candidates


def test_it_is_a_candidate_again_once_it_publishes_something_new(node_backoff: NodeBackoff) -> None:
    pod = watched("train", attempt=1)
    node_backoff.refused(replace(pod, node="a"))
    assert node_backoff.left(published("9"), pod) == 1
    assert node_backoff.left(published("11"), pod) is None
    assert not node_backoff.excluded_nodes(published("11"), pod)


def test_else_once_its_time_has_passed_which_is_twice_as_long_each_time(
    node_backoff: NodeBackoff, clock: Clock
) -> None:
    pod, snapshot = watched("train", attempt=1), published("5")
    for number, seconds in enumerate((1, 2, 4)):
        for _ in range(2):  # it is seen again and again, and was refused once
            node_backoff.refused(replace(pod, uid=f"uid-{number}", node="a"))
        assert node_backoff.left(snapshot, pod) == seconds
        clock.now += seconds
        assert node_backoff.left(snapshot, pod) is None
        assert not node_backoff.excluded_nodes(snapshot, pod)


def test_the_refused_pod_itself_says_which_node_refused_it(node_backoff: NodeBackoff) -> None:
    """Of that node the diagnosis says more than that it is held back."""
    pod = watched("train", attempt=1, node="a")
    node_backoff.refused(pod)
    assert not node_backoff.excluded_nodes(published("5"), pod)
