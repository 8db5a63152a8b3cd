"""Whose turn it is where more pods wait for room than are tried at a time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import gated_pod
from tests.clock import Clock
from tests.reconcile.emitted import Emitted

from topomend.cache import changes
from topomend.decide.diagnosis.feasibility import ExcludedNodes
from topomend.decide.eligibility import Limits
from topomend.kube.client import Reading
from topomend.kube.resources import PRIORITY_CLASSES, Resource
from topomend.model.pods.scheduling import WatchedPod
from topomend.reconcile.gated.preemption import MAX_TRIED, NEGLECTED_SECONDS, PATIENCE_SECONDS, Preemptor
from topomend.reconcile.namespace_limits import NamespaceLimits
from topomend.reconcile.placement.untried_pods import UntriedPods
from topomend.reconcile.store import Store

TICK_SECONDS = 0.5


class ClassesAlone:
    """An API server of a cluster without priority classes: nothing else is asked, for there is no node to look at."""

    def read(self, resource: Resource, _: Callable[..., Any], **__: Any) -> Reading[Any]:
        assert resource == PRIORITY_CLASSES
        return Reading((), "9")

    def get(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"metadata": {}}


class Waiting:
    """Pods that nothing can help: none of them finds a node. ``tried`` are those whose turn has been."""

    def __init__(self) -> None:
        self.clock, self.store, self.tried = Clock(), Store(), list[WatchedPod]()
        client: Any = ClassesAlone()
        self.preemptor = Preemptor(
            client,
            self.store,
            Emitted().announcer,
            NamespaceLimits(client, Limits(), self.clock),
            excluded=self._seen,
            let_go=lambda *_: None,
            is_gated_by_us=lambda _: True,
            count=lambda _: None,
            untried=UntriedPods(self.store, self.clock),
            clock=self.clock,
        )

    def _seen(self, pod: WatchedPod) -> ExcludedNodes:
        self.tried.append(pod)
        return {}

    def wait(self, namespace: str, pods: int = 1, *, created: int = 1, priority: int = 10, relaunch: str = "") -> None:
        for number in range(pods):
            name, uid = f"p-{created}-{number:03d}", f"{namespace}-{created}-{number}"
            pod = gated_pod(name, created=created, priority=priority, uid=uid, relaunch=relaunch)
            pod = replace(pod, namespace=namespace, pod=replace(pod.pod, namespace=namespace))
            self.store.apply(changes.PodUpdated(pod, self.clock.now))

    def seconds_until(self, namespace: str, most: float) -> float:
        """How long it takes until a pod of the namespace is tried, at ``most`` so long."""
        began = self.clock.now
        while self.clock.now < began + most:
            self.preemptor.check()
            if any(pod.namespace == namespace for pod in self.tried):
                break
            self.clock.now += TICK_SECONDS
        return self.clock.now - began


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_the_first_pod_of_each_namespace_is_tried_before_the_second_of_any(waiting: Waiting) -> None:
    waiting.wait("crowd", 200)
    waiting.wait("quiet", created=2)
    waiting.clock.now += PATIENCE_SECONDS
    assert waiting.seconds_until("quiet", 60.0) == 0.0
    assert len(waiting.tried) == MAX_TRIED


def test_a_pod_of_higher_priority_comes_before_the_first_of_another_namespace(waiting: Waiting) -> None:
    waiting.wait("urgent", MAX_TRIED, priority=20)
    waiting.wait("quiet")
    waiting.clock.now += PATIENCE_SECONDS
    assert waiting.seconds_until("quiet", 60.0) == TICK_SECONDS
    assert [pod.namespace for pod in waiting.tried] == ["urgent"] * MAX_TRIED + ["quiet"]


@pytest.mark.parametrize("crowds", [{"urgent": 20}, {f"crowd-{number}": 10 for number in range(MAX_TRIED)}])
def test_a_namespace_has_a_turn_after_a_while_whatever_pods_of_others_are_due_again_for_ever(
    waiting: Waiting, crowds: dict[str, int]
) -> None:
    for namespace, priority in crowds.items():
        waiting.wait(namespace, 200, priority=priority)
    waiting.wait("quiet", created=2)
    waiting.clock.now += PATIENCE_SECONDS
    assert waiting.seconds_until("quiet", 60.0) == NEGLECTED_SECONDS - PATIENCE_SECONDS
    waiting.tried.clear()
    waiting.clock.now += TICK_SECONDS
    assert waiting.seconds_until("quiet", 60.0) == NEGLECTED_SECONDS - TICK_SECONDS


def test_pods_that_opted_out_keep_no_other_from_its_turn(waiting: Waiting) -> None:
    waiting.wait("mixed", MAX_TRIED, relaunch="false")
    waiting.wait("mixed", created=2)
    waiting.clock.now += PATIENCE_SECONDS
    assert waiting.seconds_until("mixed", 60.0) == TICK_SECONDS
