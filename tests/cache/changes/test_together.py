"""Changes that are applied together have the effect that they have one after another, and no snapshot changes later."""

import random

import pytest
from tests.builders import applied, gated_pod, node_state, refused_pod, snapshot_of
from tests.seeds import SEED

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot


def some_change(chance: random.Random, now: float) -> changes.Change:
    name = f"p{chance.randrange(5)}"
    pod, version = gated_pod(name, uid=name), str(chance.randrange(100))
    kinds: list[changes.Change] = [
        changes.PodUpdated(gated_pod(name, uid=name, version=version), now),
        changes.PodUpdated(refused_pod(name, uid=name, version=version), now),
        changes.PodUpdated(gated_pod(name, uid=name, version=version, gates=(), node="a"), now),
        changes.PodRemoved("ns", name, name, now),
        changes.PodAssumed(pod.pod, ("a",), now),
        changes.PodForgotten("ns", name),
        changes.PodsListed((pod,), version, now),
        changes.TimePassed(now),
    ]
    return chance.choice(kinds)


def test_random_changes_together_lead_to_the_same_snapshot_as_one_after_another() -> None:
    print(f"seed {SEED}")
    chance, now = random.Random(SEED), 0.0
    one_by_one = together = snapshot_of(node_state())
    for _ in range(300):
        now += chance.choice([0.0, 1.0, changes.UNBOUND_SECONDS])
        some = [some_change(chance, now) for _ in range(chance.randrange(1, 6))]
        one_by_one, together = applied(*some, to=one_by_one), changes.apply_all(together, some)
        assert together == one_by_one


def test_a_snapshot_stays_as_it_is_when_later_changes_are_applied() -> None:
    first = changes.apply_all(Snapshot(), [changes.PodUpdated(gated_pod(name), 1.0) for name in ("p", "q")])
    second = changes.apply_all(first, [changes.PodUpdated(gated_pod(name), 1.0) for name in ("r", "s")])
    changes.apply(second, changes.PodRemoved("ns", "p", gated_pod("p").uid, 1.0))
    assert [set(snapshot.gated) for snapshot in (first, second)] == [
        {("ns", "p"), ("ns", "q")},
        {("ns", "p"), ("ns", "q"), ("ns", "r"), ("ns", "s")},
    ]


def test_a_pod_that_is_listed_as_it_is_known_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of thousands brings few that are not."""
    pods = tuple(gated_pod(name) for name in ("p", "q"))
    before = changes.apply(Snapshot(), changes.PodsListed(pods, "9", 1.0))
    monkeypatch.setattr(changes.PodUpdated, "apply_to", lambda *_: pytest.fail("applied"))
    after = changes.apply(before, changes.PodsListed(pods, "9", 2.0))
    assert (after.gated, after.gated_since) == (before.gated, before.gated_since)
