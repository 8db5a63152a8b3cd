"""A duty whose request is never answered stops no other duty of the real operator."""

import threading
from collections.abc import Callable

import pytest
from tests.faults.conftest import Scene
from tests.faults.proxy import Answer, Request
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster]

OTHERS = (
    "agents",
    "assumed-pods",
    "brake-release",
    "placeholders",
    "preemption",
    "reservations",
    "scale-up",
    "startup-taints",
    "unaligned-pods",
    "unbound-pods",
)


def test_a_request_that_is_never_answered_stops_its_own_duty_alone(scene_of: Callable[[str], Scene]) -> None:
    scene = scene_of("duties")
    asked, answered = threading.Event(), threading.Event()

    def hang(request: Request) -> Answer | None:
        if request.plural == "deviceclasses":
            asked.set()
            answered.wait()
        return None

    scene.proxy.rules.append(hang)
    try:
        scene.start()
        eventually("DeviceClasses to be asked for", asked.is_set)
        began = _last(scene, "device-classes")
        before = {name: _last(scene, name) for name in OTHERS}
        eventually("all others to go on", lambda: all(_last(scene, name) > before[name] for name in OTHERS))
        assert _last(scene, "device-classes") == began, "the operator's start, from which its duties count"
    finally:
        answered.set()
    eventually("the duty to go on as well", lambda: _last(scene, "device-classes") > began)
    scene.is_well()


def _last(scene: Scene, duty: str) -> float:
    """When the duty was last done, as its metric says; when the operator started if it never was."""
    return scene.metric(f'topomend_operator_duty_last_success_timestamp_seconds{{duty="{duty}"}}')
