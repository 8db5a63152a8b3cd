"""Two pods for which kube-scheduler evicts the right pods only at once, on a real API server."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.builders import pod_manifest, running, snapshot_of
from tests.clusters import NODE_A, NODE_B, Cluster, priority_class
from tests.reconcile.gated.preempting import Waiting, budget
from tests.reconcile.parts import EMPTY_A, EMPTY_B
from tests.refused_pods import watched
from tests.waiting import eventually

from topomend.cache import changes
from topomend.kube.client import Client
from topomend.kube.errors import Forbidden
from topomend.model.pods.scheduling import Placement, WatchedPod
from topomend.reconcile.gated.preemption import PATIENCE_SECONDS, RESTS, SOON_SECONDS
from topomend.reconcile.gated.together import HELD_SECONDS
from topomend.relaunch import pod_requests
from topomend.wire.group import RELAUNCH_ANNOTATION
from topomend.wire.pods.pod import read_pod

pytestmark = pytest.mark.cluster

LONG_AGO = "2020-01-01T00:00:00Z"
PRIORITIES = {"low": -10, "middle": 5, "high": 20}


@pytest.fixture
def priorities(two_nodes: Cluster) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in PRIORITIES.items():
            stack.enter_context(priority_class(two_nodes, name, value))
        yield


def fill(waiting: Waiting, node: str, *pods: tuple[str, str, str]) -> None:
    """Have pods of these names, CPUs or requests, and priorities run on the node, one after the other.

    All have opted out: the operator evicts none of them.
    """
    for name, container, priority in pods:
        content = pod_manifest(name, container, node=node, labels={"n": name})
        content["metadata"]["annotations"] = {RELAUNCH_ANNOTATION: "false"}
        content["spec"] |= {"priorityClassName": priority, "terminationGracePeriodSeconds": 0}
        waiting.filling.append(waiting.cluster.create(content))
        eventually("it to run", lambda: waiting.cluster.running(name))  # noqa: B023


@pytest.fixture
def empty(two_nodes: Cluster, priorities: None) -> Iterator[Waiting]:  # noqa: ARG001  the classes of its pods
    waiting = Waiting(two_nodes)
    waiting.assumes = True
    waiting.fill()
    yield waiting
    two_nodes.remove_all()


@pytest.fixture
def waiting(empty: Waiting) -> Waiting:
    """Each of the two pods that come would have kube-scheduler evict too few. Kept: seed 20261127, cluster 996."""
    fill(
        empty,
        NODE_B,
        ("low", "cpu=2 memory=64Mi", "low"),
        ("second", "cpu=2 memory=64Mi", ""),
        ("third", "cpu=1 memory=64Mi", ""),
    )
    empty.store.snapshot = snapshot_of(running(EMPTY_B, *map(read_pod, empty.filling)))
    return empty


def both(waiting: Waiting, **fields: object) -> tuple[WatchedPod, WatchedPod]:
    """A pod of three CPUs, and an older one of four with these fields; both have waited."""
    urgent = waiting.wait()
    wide = waiting.wait(name="wide", cpus=4, creation_time=LONG_AGO, **fields)
    return urgent, wide


def nominated(waiting: Waiting, name: str = "urgent") -> str:
    return str(waiting.cluster.get(name)["status"].get("nominatedNodeName", ""))


def test_one_is_let_go_once_the_place_of_the_other_is_held_and_neither_alone(waiting: Waiting) -> None:
    urgent = waiting.wait()
    waiting.preemptor.check()
    assert (waiting.let_go, nominated(waiting)) == ([], "")
    waiting.wait(name="wide", cpus=4, creation_time=LONG_AGO)
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
    """Something has changed meanwhile. Either is tried in its turn."""
    waiting.assumes = False
    both(waiting)
    waiting.preemptor.check()
    assert waiting.let_go == [("wide", (NODE_B,)), ("urgent", (NODE_B,))]
    assert waiting.preemptor.reservations() == ()
    for _ in range(2):  # the first time the snapshot still shows the nominations, which are taken back
        waiting.clock.now += SOON_SECONDS
        waiting.preemptor.check()
        waiting.again()
        waiting.watch(replace(watched(waiting.cluster, "wide"), priority=10, creation_time=LONG_AGO))
    assert (nominated(waiting), nominated(waiting, "wide")) == ("", "")
    waiting.assumes = True
    waiting.clock.now += RESTS.first
    waiting.preemptor.check()
    assert (waiting.let_go[-1], nominated(waiting)) == (("wide", (NODE_B,)), NODE_B)


def test_no_place_is_held_for_a_pod_that_the_scheduler_may_send_elsewhere(waiting: Waiting) -> None:
    """Whichever of them is larger: it is let go itself, and the scheduler judges its rules."""
    both(waiting, scheduler_rules=("volumes",))
    waiting.preemptor.check()
    assert waiting.let_go == [("wide", (NODE_B,))]
    assert (nominated(waiting), nominated(waiting, "wide")) == (NODE_B, "")


def fill_other_node(waiting: Waiting) -> None:
    """Have kube-scheduler make room on node A for a pod of three CPUs, and for none of four."""
    on_b, waiting.filling = waiting.filling, []
    fill(waiting, NODE_A, ("leaves", "cpu=3 memory=64Mi", "low"), ("stays", "cpu=3 memory=64Mi", "high"))
    waiting.store.snapshot = snapshot_of(
        running(EMPTY_A, *map(read_pod, waiting.filling)), running(EMPTY_B, *map(read_pod, on_b))
    )


def test_a_pod_goes_with_a_later_one_for_which_nobody_makes_room_alone_rather_than_elsewhere(waiting: Waiting) -> None:
    """On node A there is room for the first one alone. Kept: seed 20261127, cluster 623."""
    fill_other_node(waiting)
    waiting.wait(creation_time=LONG_AGO)
    waiting.preemptor.check()
    assert waiting.let_go == [("urgent", (NODE_A,))], "it is alone"
    waiting.let_go.clear()
    waiting.apply(changes.PodForgotten("default", "urgent"))
    waiting.wait(name="wide", cpus=4)
    waiting.preemptor.check()
    assert (waiting.let_go, nominated(waiting, "wide")) == ([("urgent", (NODE_B,))], NODE_B)


def test_a_later_pod_that_cannot_be_written_keeps_no_other_from_its_own_place(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner's admission policy may deny every change of it."""
    fill_other_node(waiting)
    nominate = pod_requests.nominate

    def denied(client: Client, pod: WatchedPod, node: str) -> bool:
        if pod.name == "wide":
            raise Forbidden(403, "Forbidden", "denied by a policy")
        return nominate(client, pod, node)

    monkeypatch.setattr(pod_requests, "nominate", denied)
    waiting.wait(creation_time=LONG_AGO)
    waiting.wait(name="wide", cpus=4)
    waiting.preemptor.check()
    assert waiting.let_go == [("urgent", (NODE_A,))]


def test_a_later_pod_that_a_budget_helps_goes_alone(empty: Waiting) -> None:
    """Together more pods would leave, or more important ones."""
    fill(
        empty,
        NODE_B,
        ("first", "cpu=2 memory=64Mi", "middle"),
        ("second", "cpu=2 memory=64Mi", "low"),
        ("kept", "cpu=1 memory=64Mi", "low"),
        ("important", "cpu=2 memory=64Mi", ""),
    )
    fill_other_node(empty)
    empty.wait(creation_time=LONG_AGO)
    empty.wait(name="later")
    with budget(empty.cluster, {"n": "kept"}):
        empty.preemptor.check()
    assert (empty.let_go[0], nominated(empty, "later")) == (("urgent", (NODE_A, NODE_B)), "")


def test_two_are_let_go_together_rather_than_one_of_them_beyond_a_budget(empty: Waiting) -> None:
    """On node A the wide one has it evict a protected pod; beside the other one it fits node B.

    Kept: seed 20261127, cluster 805.
    """
    fill(
        empty,
        NODE_A,
        ("small", "request:cpu=500m", ""),
        ("stays", "cpu=3 memory=64Mi", "high"),
        ("protected", "cpu=3 memory=64Mi", "low"),
    )
    on_a, empty.filling = empty.filling, []
    fill(empty, NODE_B, ("low", "cpu=3 memory=64Mi", "low"), ("middle", "cpu=3 memory=64Mi", "middle"))
    on_b = empty.filling
    empty.store.snapshot = snapshot_of(
        *(running(state, *map(read_pod, pods)) for state, pods in ((EMPTY_A, on_a), (EMPTY_B, on_b)))
    )
    with budget(empty.cluster, {"n": "protected"}):
        both(empty)
        empty.preemptor.check()
    assert (empty.let_go, nominated(empty)) == ([("wide", (NODE_B,))], NODE_B)


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
