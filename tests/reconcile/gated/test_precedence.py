"""Whether others come first although victims have been found for a pod."""

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod, guaranteed_pod, node_state, running, snapshot_of, watched_pod
from tests.clock import Clock

from topomend.cache import changes
from topomend.cache.changes import apply
from topomend.decide.queue import victims
from topomend.decide.queue.victims import Preemption, Running
from topomend.model.pods.scheduling import Placement, WatchedPod
from topomend.reconcile.gated.precedence import (
    AWAITED_SECONDS,
    CHOOSING_SECONDS,
    LEAVING_SECONDS,
    MAX_AWAITED,
    Precedence,
    Turn,
)
from topomend.reconcile.gated.sweeps import Look
from topomend.reconcile.object_faults import ObjectFaults
from topomend.reconcile.store import Store

FIRST, URGENT = gated_pod("first", 2, priority=10), gated_pod("urgent", 2, created=1, priority=10)
UNGATED = replace(FIRST, gates=(), version="9", narrowed=True)
LARGE = watched_pod("large", 4, node="a", phase="Running")
SMALL = watched_pod("small", 3, node="a", phase="Running")
OTHER = watched_pod("other", 3, node="b", phase="Running")
HERE = Preemption("b", (OTHER,))


class Deciding:
    """On node ``a`` pods leave for the first pod; ``HERE`` has another one leave ``b`` for the urgent one."""

    def __init__(self, *, bound: bool) -> None:
        self.clock, self.store, self.asked = Clock(), Store(), list[str]()
        snapshot = snapshot_of(
            running(node_state(name="a"), LARGE.pod, SMALL.pod), running(node_state(name="b"), OTHER.pod)
        )
        snapshot = apply(snapshot, changes.PodAssumed(FIRST.pod, ("a",), 0.0, displaces=True))
        if bound:
            snapshot = apply(snapshot, changes.PodUpdated(replace(UNGATED, node="a"), 0.0))
        self.store.snapshot = snapshot
        self.pods = {"a": [LARGE, SMALL], "b": [OTHER]}
        faults = ObjectFaults(logging.getLogger(__name__), "nothing is done", self.clock)
        self.precedence = Precedence(self.store, faults, self._running, lambda _, running: running, self.clock)

    def _running(self, nodes: Collection[str]) -> Running:
        self.asked += nodes
        return Running({name: self.pods[name] for name in nodes})

    def turn(self, barred: Collection[str] = ("a",)) -> Turn:
        running = Running({name: pods for name, pods in self.pods.items() if name not in barred})
        return Turn(URGENT, (), (), Look(tuple(running.by_node), is_first=True, barred=barred, more=False), running)

    def seconds(self, choice: Preemption = HERE) -> float:
        return self.precedence.seconds(self.turn(), choice)


@pytest.fixture
def leaving() -> Deciding:
    """The large pod leaves ``a`` for the first one, which is bound, and two of its CPUs are left."""
    deciding = Deciding(bound=True)
    deciding.pods["a"] = [replace(LARGE, deleting=True), SMALL]
    return deciding


def test_nobody_leaves_another_node_while_enough_leave_one_for_another_pod(leaving: Deciding) -> None:
    """kube-scheduler counts those that leave already. Kept: seed 311127, clusters 411 and 903."""
    assert leaving.seconds() == LEAVING_SECONDS


def test_a_pod_waits_for_less_important_victims_too_and_for_no_others(leaving: Deciding) -> None:
    """Kept: seed 311127, cluster 13."""
    leaving.pods["a"][0] = replace(LARGE, deleting=True)
    wide = replace(FIRST, pod=guaranteed_pod("first", 4))
    leaving.store.snapshot = apply(leaving.store.snapshot, changes.PodAssumed(wide.pod, ("a",), 0.0, displaces=True))
    assert leaving.seconds() == 0, "a pod of equal priority has to leave either node"
    important = Preemption("b", (replace(OTHER, priority=5),))
    assert leaving.seconds(important) == LEAVING_SECONDS


def test_a_pod_that_has_nobody_leave_waits_for_nothing(leaving: Deciding) -> None:
    assert leaving.seconds(Preemption("b", ())) == 0
    assert leaving.asked == []


def test_it_waits_a_moment_while_the_scheduler_chooses_whom_it_evicts() -> None:
    choosing = Deciding(bound=False)
    assert choosing.seconds() == CHOOSING_SECONDS
    choosing.store.snapshot = apply(
        choosing.store.snapshot, changes.PodUpdated(replace(UNGATED, unschedulable=True), 0.0)
    )
    assert choosing.seconds() == 0, "the scheduler has found no node"


def test_it_waits_no_longer_than_other_pods_may_run_meanwhile(leaving: Deciding) -> None:
    leaving.clock.now += 1_000
    assert leaving.seconds() == LEAVING_SECONDS
    leaving.clock.now += AWAITED_SECONDS - 0.1
    assert leaving.seconds() == LEAVING_SECONDS
    leaving.clock.now += 0.1
    assert leaving.seconds() == 0


def test_few_nodes_are_looked_at_for_a_pod(leaving: Deciding) -> None:
    names = [f"n{number}" for number in range(MAX_AWAITED + 2)]
    leaving.pods |= {name: [] for name in names}
    leaving.precedence.seconds(leaving.turn(names), HERE)
    assert leaving.asked == names[:MAX_AWAITED]


def test_a_larger_pod_waits_where_an_older_one_would_find_no_place_after_it() -> None:
    """Kept: seed 311127, cluster 973."""
    deciding = Deciding(bound=True)
    older = gated_pod("older", 3, priority=10)
    wide = gated_pod("wide", 4, created=1, priority=10)
    deciding.store.snapshot = snapshot_of(running(node_state(name="b"), OTHER.pod, LARGE.pod))
    deciding.pods = {"b": [replace(OTHER, priority=20), LARGE]}
    choice = Preemption("b", (LARGE,))
    turn = replace(deciding.turn(()), earlier=(older,), pod=wide)
    assert deciding.precedence.seconds(turn, choice) == LEAVING_SECONDS
    without = replace(turn, earlier=())
    assert deciding.precedence.seconds(without, choice) == 0
    hopeless = replace(turn, earlier=(replace(older, priority=0),))
    assert deciding.precedence.seconds(hopeless, choice) == 0, "the older one has no place in any case"
    deciding.store.snapshot = snapshot_of(
        running(node_state(name="b"), OTHER.pod, LARGE.pod), running(node_state(name="c"), SMALL.pod, LARGE.pod)
    )
    deciding.pods["c"] = [replace(SMALL, node="c"), replace(LARGE, node="c")]
    turn = replace(deciding.turn(()), earlier=(older,), pod=wide)
    assert deciding.precedence.seconds(turn, choice) == 0, "it finds one on another node"


def test_a_younger_pod_comes_first_only_where_it_finds_no_place_after_the_older_one_and_that_one_finds_one() -> None:
    """Kept: seed 2119086878, cluster 15: else the small one gets the large NUMA node, and the large one never any."""
    deciding = Deciding(bound=True)
    narrow, wide = gated_pod("narrow", 2, priority=10), gated_pod("wide", 4, created=1, priority=10)
    deciding.store.snapshot = snapshot_of(running(node_state(name="b"), OTHER.pod, LARGE.pod))
    kept = replace(OTHER, priority=20)
    deciding.pods = {"b": [kept, LARGE]}
    turn, choice = replace(deciding.turn(()), later=(wide,), pod=narrow), Preemption("b", (LARGE,))
    assert deciding.precedence.seconds(turn, choice) == 0, "one of them has a place: the older one"
    deciding.store.snapshot = snapshot_of(
        running(node_state(name="b"), OTHER.pod, LARGE.pod), running(node_state(name="c"), SMALL.pod, LARGE.pod)
    )
    deciding.pods["c"] = [replace(SMALL, node="c"), replace(LARGE, node="c", priority=20)]
    turn = replace(deciding.turn(()), later=(wide,), pod=narrow)
    assert deciding.precedence.seconds(turn, choice) == LEAVING_SECONDS, "it finds another one"
    deciding.clock.now += AWAITED_SECONDS
    assert deciding.precedence.seconds(turn, choice) == 0, "it does not wait for ever"


def beside_a_wide_one() -> tuple[Deciding, Turn, Preemption]:
    """The turn of a narrow pod for which one leaves NUMA node 1 of ``b``, the only one for a wide pod that is later."""
    deciding = Deciding(bound=True)
    narrow, wide = gated_pod("narrow", 2, priority=10), gated_pod("wide", 4, created=1, priority=10)
    cpus = {"stays": 1, "leaves": 2, "second": 2, "third": 2}
    stays, *others = (watched_pod(name, count, node="b", phase="Running") for name, count in cpus.items())
    deciding.store.snapshot = snapshot_of(running(node_state(name="b"), stays.pod, *(other.pod for other in others)))
    deciding.pods = {"b": [replace(stays, priority=20), *others]}
    return deciding, replace(deciding.turn(()), later=(wide,), pod=narrow), Preemption("b", (others[-1],))


def test_a_younger_pod_is_judged_by_where_the_older_one_will_be() -> None:
    """If all left first, the narrow one would be on NUMA node 0, where it fits. Kept: seed 311127, cluster 515."""
    deciding, turn, choice = beside_a_wide_one()
    assert deciding.precedence.seconds(turn, choice) == LEAVING_SECONDS


@pytest.mark.parametrize(
    "fields",
    [
        {"placement": Placement(node_selector={"zone": "none"})},
        {"scheduler_rules": ("volumes",), "placement": Placement(volumes=None)},
    ],
    ids=["no node suits it", "kube-scheduler evicts too few for it"],
)
def test_a_pod_for_which_nobody_leaves_keeps_no_other_waiting(fields: dict[str, object]) -> None:
    """Each tenant may make such a pod."""
    deciding, turn, choice = beside_a_wide_one()
    assert deciding.precedence.seconds(turn, choice) == LEAVING_SECONDS
    helpless = replace(turn.later[0], **fields)  # type: ignore[arg-type]
    assert deciding.precedence.seconds(replace(turn, later=(helpless,)), choice) == 0


def test_a_pod_that_reveals_a_bug_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    deciding, turn, choice = beside_a_wide_one()
    place = victims.where_scheduler_preempts

    def failing(snapshot: Any, pod: WatchedPod, *rest: Any) -> Any:
        assert pod.name != "wide", "a bug"
        return place(snapshot, pod, *rest)

    monkeypatch.setattr(victims, "where_scheduler_preempts", failing)
    assert deciding.precedence.seconds(turn, choice) == 0
    assert deciding.precedence.seconds(replace(turn, earlier=turn.later, later=()), choice) == 0


def test_an_older_pod_for_which_nobody_need_leave_comes_first() -> None:
    """The end of a pod was not seen, so a node counts as full. Kept: seed 20261127, cluster 891."""
    deciding = Deciding(bound=True)
    deciding.store.snapshot = snapshot_of(running(node_state(name="b"), LARGE.pod), node_state(name="c"))
    deciding.pods = {"b": [LARGE], "c": []}
    older, wide = gated_pod("older", 2, priority=10), gated_pod("wide", 4, priority=10)
    turn = replace(deciding.turn(()), earlier=(older,), pod=wide)
    assert deciding.precedence.seconds(turn, Preemption("b", (LARGE,))) == LEAVING_SECONDS
    deciding.clock.now += AWAITED_SECONDS
    assert deciding.precedence.seconds(turn, Preemption("b", (LARGE,))) == 0, "it is not waited for for ever"
