"""Faults while the operator ungates pods by its snapshot alone: a gap in the snapshot loses no pod."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters import NODE_B, pod
from tests.faults.conftest import Scene
from tests.faults.proxy import HangUp, Moment, Write
from tests.waiting import eventually

from topomend.kube.resources import PODS
from topomend.wire.group import FIT_GATE

pytestmark = [pytest.mark.cluster]


def gated(name: str, cpus: int = 3) -> dict[str, Any]:
    content = pod(name, cpus)
    content["spec"]["schedulingGates"] = [{"name": FIT_GATE}]
    return content


def at_its_release(scene: Scene, name: str, moment: Moment, act: Callable[[], object]) -> list[int]:
    """Do this at the first attempt to let the pod go; the numbers of all attempts so far."""
    attempts: list[int] = []
    lock = threading.Lock()

    def fault(write: Write, now: Moment) -> None:
        if (write.method, write.path.rpartition("/")[2], now) != ("PATCH", name, moment):
            return
        with lock:
            attempts.append(write.number)
        if len(attempts) == 1:
            act()

    scene.proxy.fault = fault
    return attempts


def runs_on_b(scene: Scene, name: str) -> None:
    eventually(f"{name} to run", lambda: scene.phase(name) == "Running", 30)
    assert scene.get(name)["spec"]["nodeName"] == NODE_B
    scene.nothing_doubled(name)


def test_a_pod_that_changed_since_it_was_seen_is_read_anew_and_ungated(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("gated-changed")

    def change() -> None:
        scene.cluster.client.merge(PODS, "held", {"metadata": {"labels": {"a": "b"}}}, scene.namespace)

    scene.proxy.rewrite = lambda _, event: None if event["object"]["metadata"].get("labels") else event
    attempts = at_its_release(scene, "held", Moment.BEFORE, change)
    scene.start()
    scene.cluster.create(gated("held"), scene.namespace)
    runs_on_b(scene, "held")
    assert len(attempts) == 2
    scene.is_well()


def test_a_pod_whose_release_was_not_answered_keeps_its_place(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("gated-unanswered")

    def lose_it() -> None:
        raise HangUp("the answer does not arrive")

    attempts = at_its_release(scene, "held", Moment.BETWEEN, lose_it)
    scene.start()
    scene.cluster.create(gated("held"), scene.namespace)
    runs_on_b(scene, "held")
    assert len(attempts) <= 2
    scene.is_well()


def test_a_pod_that_was_deleted_unseen_holds_no_place(scene_of: Callable[[str], Scene]) -> None:
    """One place is left: whoever comes next gets it only if the ghost's is given back."""
    scene = scene_of("gated-deleted")

    def delete() -> None:
        scene.remove("ghost")

    scene.proxy.rewrite = lambda _, event: (
        None if event["type"] == "DELETED" and event["object"]["metadata"]["name"] == "ghost" else event
    )
    attempts = at_its_release(scene, "ghost", Moment.BEFORE, delete)
    scene.start()
    scene.cluster.create(gated("ghost", 8), scene.namespace)
    eventually("its release to be tried", lambda: attempts)
    eventually("it to be gone", lambda: not scene.exists("ghost"))
    for number in range(3):
        scene.cluster.create(gated(f"next-{number}", 8), scene.namespace)
    for number in range(3):
        runs_on_b(scene, f"next-{number}")
    assert len(attempts) == 1
    scene.is_well()
