"""Which pods are waited for until others were asked to leave for them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import applied, gated_pod, node_state, snapshot_of
from tests.clock import Clock

from topomend.cache import changes
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.placement.untried_pods import MAX_PODS, SECONDS, UntriedPods
from topomend.reconcile.store import Store

OLD, YOUNG = (gated_pod(name, 2, created=number, priority=10) for number, name in enumerate(("old", "young")))


class Untried(UntriedPods):
    """Those of a cluster in which the oldest pod has just come."""

    def __init__(self, *pods: WatchedPod) -> None:
        self.store, self.clock = Store(), Clock()
        super().__init__(self.store, self.clock)
        self.lowest = 0
        self.store.snapshot = snapshot_of(node_state())
        self.apply(*(changes.PodUpdated(pod, self.clock.now) for pod in pods))
        for pod in pods:
            self.add(pod)

    def apply(self, *cluster_changes: changes.Change) -> None:
        self.store.snapshot = applied(*cluster_changes, to=self.store.snapshot)


def test_a_younger_pod_of_the_same_namespace_and_priority_waits_for_it() -> None:
    untried = Untried(OLD, YOUNG)
    assert untried.before(YOUNG) == [OLD]
    assert untried.before(OLD) == []
    assert untried.before(replace(YOUNG, namespace="another")) == []
    assert untried.before(replace(YOUNG, priority=11)) == []


def test_it_is_waited_for_only_until_it_was_tried() -> None:
    untried = Untried(OLD)
    untried.tried(OLD)
    assert untried.before(YOUNG) == []
    untried.add(OLD)
    assert untried.before(YOUNG) == []


def test_it_is_waited_for_only_for_a_while() -> None:
    untried = Untried(OLD)
    untried.clock.now += SECONDS / 2
    untried.add(OLD)
    assert untried.before(YOUNG) == [OLD]
    untried.clock.now += SECONDS / 2
    assert untried.before(YOUNG) == []


def test_it_is_waited_for_only_while_it_waits_itself() -> None:
    untried = Untried(OLD)
    untried.apply(changes.PodAssumed(OLD.pod, ("a",), untried.clock.now))
    assert untried.before(YOUNG) == []
    untried = Untried(OLD)
    untried.apply(changes.PodRemoved(OLD.namespace, OLD.name, OLD.uid, untried.clock.now))
    assert untried.before(YOUNG) == []


@pytest.mark.parametrize(
    "fields",
    [{"priority": 0}, {"preempts": False}, {"scheduler_rules": ("schedulerName",)}],
    ids=["of the lowest priority", "that preempts none", "of a scheduler of its own"],
)
def test_nobody_waits_for_a_pod(fields: dict[str, Any]) -> None:
    pod = replace(OLD, **fields)
    assert Untried(pod).before(replace(YOUNG, priority=pod.priority)) == []


def test_nobody_waits_where_none_is_evicted() -> None:
    untried = Untried(OLD)
    untried.lowest = None
    untried.add(replace(OLD, uid="another"))
    assert untried.before(YOUNG) == []


def test_of_very_many_the_first_are_waited_for() -> None:
    pods = [gated_pod(f"old-{number:03d}", 2, created=0, priority=10) for number in range(MAX_PODS + 5)]
    assert Untried(*pods).before(YOUNG) == pods[:MAX_PODS]


def test_it_is_read_in_the_snapshot_so_that_no_pod_is_kept_for_it() -> None:
    untried = Untried(OLD)
    changed = replace(OLD, version="99")
    untried.apply(changes.PodUpdated(changed, untried.clock.now))
    assert untried.before(YOUNG) == [changed]
