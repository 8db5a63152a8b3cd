"""Pods whose group's object the API server does not give wait no longer than for others of their group."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from tests.builders import applied, gated_pod
from tests.clock import Clock
from tests.reconcile.emitted import Emitted

from topomend.cache.changes import PodUpdated
from topomend.kube.client import Client
from topomend.kube.errors import APIError, NotPermitted, Unanswered, refused
from topomend.kube.resources import Resource
from topomend.model.pods.scheduling import PodGroup, WatchedPod
from topomend.reconcile.gated.gangs import INCOMPLETE_SECONDS, SETTLE_SECONDS, Gangs
from topomend.reconcile.result import Result
from topomend.reconcile.store import Store
from topomend.wire.pods.pod_group import VOLCANO

GROUP = PodGroup(VOLCANO, "train")

PODS = [gated_pod(f"train-{number}", group=GROUP) for number in range(2)]


class Scene:
    """Both pods, of which the second came when the first had waited ``between`` seconds."""

    def __init__(self, answer: dict[str, Any] | APIError, between: float = 0.0) -> None:
        self.answer, self.clock, self.store = answer, Clock(), Store()
        for pod in PODS:
            self.store.snapshot = applied(PodUpdated(pod, self.clock.now), to=self.store.snapshot)
            self.clock.now += between
        self.clock.now -= between
        self.gangs = Gangs(cast("Client", self), self.store, Emitted().announcer, self.clock)

    def get(self, _: Resource, __: str, ___: str) -> dict[str, Any]:
        """What a client gets of the group's object."""
        if isinstance(self.answer, APIError):
            raise self.answer
        return self.answer

    def gather(self) -> Sequence[WatchedPod] | Result:
        return self.gangs.gather(PODS[0], GROUP)


@pytest.mark.parametrize("status", [400, 405, 410, 422])
def test_a_refusal_that_does_not_pass_is_as_good_as_no_object(status: int) -> None:
    scene = Scene(refused(status, b""))
    assert scene.gather() == Result(SETTLE_SECONDS)
    scene.clock.now += SETTLE_SECONDS
    assert scene.gather() == PODS


@pytest.mark.parametrize(
    "error", [refused(503, b""), refused(500, b""), refused(429, b""), Unanswered("no answer within 15 s")], ids=str
)
def test_a_failure_that_may_pass_holds_the_pods_until_the_first_has_waited_long_enough(error: APIError) -> None:
    scene = Scene(error, between=INCOMPLETE_SECONDS / 2)
    scene.clock.now += INCOMPLETE_SECONDS / 2 - 1
    with pytest.raises(type(error)):
        scene.gather()
    scene.clock.now += 1
    assert scene.gather() == PODS


def test_a_group_that_can_be_read_again_in_time_goes_as_its_object_says() -> None:
    scene = Scene(refused(503, b""))
    with pytest.raises(APIError):
        scene.gather()
    scene.answer = {"spec": {"minMember": 1}}
    assert scene.gather() == [PODS[0]]


def test_a_process_that_may_not_ask_lets_no_pod_go() -> None:
    scene = Scene(NotPermitted("another operator leads"))
    scene.clock.now += INCOMPLETE_SECONDS
    with pytest.raises(NotPermitted):
        scene.gather()
