"""Probes of the agent: alive while its loop turns, ready while its publications arrive."""

from tests.clock import Clock

from topomend.agent.health import STALE_SECONDS, Health
from topomend.runtime.http.endpoints import HEALTH, READINESS


def test_an_agent_is_alive_while_its_loop_turns_although_nothing_can_be_published() -> None:
    clock = Clock(0.0)
    health = Health(clock)
    health.published()
    for _ in range(10):
        clock.now += STALE_SECONDS / 2
        health.turned()
    assert health.problem() == ""
    assert health.unready() == "nothing was published or confirmed for 600 s"
    health.published()
    assert health.unready() == ""


def test_an_agent_whose_loop_hangs_is_not_alive() -> None:
    clock = Clock(0.0)
    health = Health(clock)
    clock.now = STALE_SECONDS + 1
    assert health.problem() == "the loop has not turned for 121 s"
    assert health.pages()[HEALTH]().status == 500


def test_an_agent_that_has_published_nothing_yet_is_alive_and_not_ready() -> None:
    health = Health(Clock(0.0))
    assert health.pages()[HEALTH]().status == 200
    assert health.pages()[READINESS]().body == b"nothing was published yet\n"
    health.published()
    assert health.pages()[READINESS]().status == 200
