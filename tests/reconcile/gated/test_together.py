"""Two pods for which kube-scheduler evicts the right pods only at once, on a real API server."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.builders import running, snapshot_of
from tests.clusters import NODE_B, Cluster, pod, priority_class
from tests.reconcile.gated.preempting import Waiting
from tests.reconcile.parts import EMPTY_B
from tests.waiting import eventually

from topomend.cache import changes
from topomend.model.pods.scheduling import Placement, WatchedPod
from topomend.reconcile.gated.preemption import PATIENCE_SECONDS, RESTS, SOON_SECONDS
from topomend.reconcile.gated.together import HELD_SECONDS
from topomend.wire.group import RELAUNCH_ANNOTATION
from topomend.wire.pods.pod import read_pod

pytestmark = pytest.mark.cluster


@pytest.fixture
def waiting(two_nodes: Cluster) -> Iterator[Waiting]:
    """Pods that opted out. Each of the two that come would have kube-scheduler evict too few of them.

    Kept: seed 20261127, cluster 996.
    """
    waiting = Waiting(two_nodes)
    waiting.assumes = True
    waiting.fill()
    with priority_class(two_nodes, "low", -10):
        for name, cpus in (("low", 2), ("second", 2), ("third", 1)):
            content = pod(name, cpus, node=NODE_B, annotations={RELAUNCH_ANNOTATION: "false"})
            content["spec"]["priorityClassName"] = "low" if name == "low" else ""
            waiting.filling.append(two_nodes.create(content))
            eventually("it to run", lambda: two_nodes.running(name))  # noqa: B023
        waiting.store.snapshot = snapshot_of(running(EMPTY_B, *map(read_pod, waiting.filling)))
        yield waiting
        two_nodes.remove_all()


def both(waiting: Waiting, **fields: object) -> tuple[WatchedPod, WatchedPod]:
    """A pod of three CPUs, and one of four with these fields; both have waited."""
    urgent = waiting.wait()
    wide = waiting.wait(name="wide", cpus=4, **fields)
    return urgent, wide


def nominated(waiting: Waiting, name: str = "urgent") -> str:
    return str(waiting.cluster.get(name)["status"].get("nominatedNodeName", ""))


def test_one_is_let_go_once_the_place_of_the_other_is_held_and_neither_alone(waiting: Waiting) -> None:
    urgent = waiting.wait()
    waiting.preemptor.check()
    assert (waiting.let_go, nominated(waiting)) == ([], "")
    waiting.wait(name="wide", cpus=4)
    waiting.clock.now += RESTS.first
    waiting.preemptor.check()
    assert (waiting.let_go, nominated(waiting)) == ([("wide", (NODE_B,))], NODE_B)
    assert [reservation.pod.uid for reservation in waiting.preemptor.reservations()] == [urgent.uid]
    assert waiting.left() == ["low", "second", "third"], "whom kube-scheduler evicts"


def test_the_place_is_held_until_the_other_pod_has_come_or_finds_no_node(waiting: Waiting) -> None:
    _, wide = both(waiting)
    waiting.preemptor.check()
    let_go = replace(wide, gates=(), version="9")
    for stage in (let_go, replace(let_go, nominated=NODE_B), replace(let_go, node=NODE_B)):
        waiting.watch(stage)
        waiting.clock.now += HELD_SECONDS - 1.0
        waiting.preemptor.check()
        assert (waiting.let_go, nominated(waiting)) == ([("wide", (NODE_B,))], NODE_B), stage
    waiting.apply(changes.PodForgotten(wide.namespace, wide.name))
    for seconds, expected in ((HELD_SECONDS - 1.0, NODE_B), (1.0, "")):
        waiting.clock.now += seconds
        waiting.again()
        waiting.preemptor.check()
        assert nominated(waiting) == expected


def test_no_place_is_held_beside_a_pod_that_was_not_let_go(waiting: Waiting) -> None:
    waiting.assumes = False
    both(waiting)
    waiting.preemptor.check()
    assert waiting.let_go == [("wide", (NODE_B,))]
    assert waiting.preemptor.reservations() == ()
    waiting.again()
    waiting.clock.now += SOON_SECONDS
    waiting.assumes = True
    waiting.preemptor.check()
    assert waiting.let_go == [("wide", (NODE_B,))] * 2, "it is tried again"


def test_no_place_is_held_for_a_pod_that_the_scheduler_may_send_elsewhere(waiting: Waiting) -> None:
    """Whichever of them is larger: it is let go itself, and the scheduler judges its rules."""
    both(waiting, scheduler_rules=("volumes",))
    waiting.preemptor.check()
    assert waiting.let_go == [("wide", (NODE_B,))]
    assert (nominated(waiting), nominated(waiting, "wide")) == (NODE_B, "")


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 11},
        {"preempts": False},
        {"relaunch": "false"},
        {"placement": Placement(volumes=None), "scheduler_rules": ("volumes",)},
        {"placement": Placement(node_selector={"kind": "another"})},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_nothing_is_done_for_two_pods_one_of_which(waiting: Waiting, fields: dict[str, object]) -> None:
    both(waiting, **fields)
    waiting.clock.now += PATIENCE_SECONDS
    waiting.preemptor.check()
    assert (waiting.let_go, waiting.preemptor.reservations()) == ([], ())
