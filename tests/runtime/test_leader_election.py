"""The election's rules by a clock that the test moves, against a Lease that is kept as an API server keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.clock import Clock

from topomend.kube.errors import AlreadyExists, Conflict, NotFound, Unanswered
from topomend.kube.resources import Resource
from topomend.runtime.leader_election import DURATION_SECONDS, RENEW_DEADLINE_SECONDS, LeaderElection


@dataclass
class Leases:
    """One Lease, its resourceVersion a precondition; ``down`` has every request go unanswered."""

    content: dict[str, Any] | None = None
    down: bool = False
    version: int = 0

    def get(self, _: Resource, name: str, namespace: str) -> dict[str, Any]:
        self._answer()
        if self.content is None:
            raise NotFound(404, "NotFound", f"{namespace}/{name}")
        return self.content

    def create(self, _: Resource, content: dict[str, Any], __: str) -> dict[str, Any]:
        self._answer()
        if self.content is not None:
            raise AlreadyExists(409, "AlreadyExists", "")
        return self._keep(content["spec"])

    def merge(self, _: Resource, name: str, patch: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        current = self.get(_, name, namespace)
        if patch["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "")
        return self._keep({**current["spec"], **patch["spec"]})

    def _answer(self) -> None:
        if self.down:
            raise Unanswered("down")

    def _keep(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.content = {"metadata": {"resourceVersion": str(self.version)}, "spec": dict(spec)}
        return self.content

    def holder(self) -> str:
        assert self.content is not None
        return str(self.content["spec"]["holderIdentity"])


@dataclass
class Candidates:
    leases: Leases = field(default_factory=Leases)
    clock: Clock = field(default_factory=Clock)
    calls: list[tuple[str, bool]] = field(default_factory=list)

    def named(self, name: str) -> LeaderElection:
        client: Any = self.leases
        return LeaderElection(client, "ns", name, lambda leads: self.calls.append((name, leads)), self.clock)


@pytest.fixture
def candidates() -> Candidates:
    return Candidates()


def test_the_first_to_stand_leads_and_the_second_does_not(candidates: Candidates) -> None:
    one, two = candidates.named("one"), candidates.named("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    assert (one.leads(), two.leads(), candidates.leases.holder()) == (True, False, "one")
    assert candidates.calls == [("one", True)]


def test_one_that_starts_again_under_its_name_goes_on_at_once(candidates: Candidates) -> None:
    candidates.named("one").try_acquire_or_renew()
    candidates.named("two").try_acquire_or_renew()
    restarted = candidates.named("one")
    restarted.try_acquire_or_renew()
    assert restarted.leads()
    assert candidates.calls == [("one", True), ("one", True)]


def test_a_holder_that_renews_is_never_followed(candidates: Candidates) -> None:
    one, two = candidates.named("one"), candidates.named("two")
    for _ in range(100):
        one.try_acquire_or_renew()
        two.try_acquire_or_renew()
        candidates.clock.now += 2
    assert (one.leads(), two.leads()) == (True, False)


def test_a_holder_that_cannot_renew_stops_before_another_may_begin(candidates: Candidates) -> None:
    one, two = candidates.named("one"), candidates.named("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    led_until = begun = 0.0
    start = candidates.clock.now
    while not two.leads():
        candidates.leases.down = True
        one.try_acquire_or_renew()
        candidates.leases.down = False
        two.try_acquire_or_renew()
        assert not (one.leads() and two.leads())
        led_until = candidates.clock.now if one.leads() else led_until
        begun = candidates.clock.now
        candidates.clock.now += 0.5
    assert led_until - start == RENEW_DEADLINE_SECONDS - 0.5
    assert begun - start == DURATION_SECONDS
    assert candidates.calls == [("one", True), ("one", False), ("two", True)]


def test_only_a_change_that_was_seen_counts_and_no_clock_of_another_machine(candidates: Candidates) -> None:
    one, two = candidates.named("one"), candidates.named("two")
    one.try_acquire_or_renew()
    assert candidates.leases.content
    candidates.leases.content["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    two.try_acquire_or_renew()
    assert not two.leads()
    candidates.clock.now += DURATION_SECONDS - 0.1
    two.try_acquire_or_renew()
    assert not two.leads()
    candidates.clock.now += 0.1
    two.try_acquire_or_renew()
    assert two.leads()


def test_a_lease_that_was_given_up_is_taken_at_the_next_look(candidates: Candidates) -> None:
    one, two = candidates.named("one"), candidates.named("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    one.stop()
    assert not one.leads()
    two.try_acquire_or_renew()
    assert two.leads()


def test_a_lease_that_is_given_up_while_it_is_renewed_stays_given_up(candidates: Candidates) -> None:
    one = candidates.named("one")
    for _ in range(2):
        one.try_acquire_or_renew()
        with one.renewing():
            one.stop()
            assert candidates.leases.holder() == ""
            given_up = candidates.leases.version
        assert (one.leads(), candidates.leases.version) == (False, given_up)


def test_a_holder_whose_lease_was_taken_writes_no_more_once_it_knows(candidates: Candidates) -> None:
    one, two = candidates.named("one"), candidates.named("two")
    one.try_acquire_or_renew()
    assert candidates.leases.content
    candidates.leases.content["spec"]["holderIdentity"] = ""
    two.try_acquire_or_renew()
    one.try_acquire_or_renew()  # its version is old
    one.try_acquire_or_renew()
    assert (one.leads(), two.leads()) == (False, True)


def test_a_candidate_that_never_led_gives_nothing_up(candidates: Candidates) -> None:
    candidates.named("one").try_acquire_or_renew()
    candidates.named("two").stop()
    assert candidates.leases.holder() == "one"
