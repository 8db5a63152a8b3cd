"""The metric of fragmentation: whose pods are typical, which nodes count, and how much a scrape asks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.builders import gated_pod, guaranteed_pod, node, node_state, refused_pod, snapshot_of

from topomend.cache.snapshot import Snapshot
from topomend.decide.pools.fragmentation import Questions
from topomend.model.nodes.node_pool import NAMING_LABELS, NO_POOL
from topomend.model.nodes.node_state import NodeState
from topomend.reconcile.metrics import fragmentation
from topomend.reconcile.metrics.fragmentation import Fragmentation
from topomend.replay.effort import Overspent

POOL = NAMING_LABELS[-1]
HALVED = node_state(name="a", pods=[guaranteed_pod("x", 2), guaranteed_pod("y", 2)])
"""1 CPU is free on NUMA node 0 and 2 are on NUMA node 1."""


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragmentation, "ASKING_SECONDS", 60.0)


def collector_of(snapshot: Snapshot, *, leads: bool = True) -> Fragmentation:
    return Fragmentation(lambda: snapshot, lambda: leads)


def scraped(collector: Fragmentation) -> Callable[..., float | None]:
    registry = CollectorRegistry()
    registry.register(collector)
    return lambda pool=NO_POOL, resource="cpu": registry.get_sample_value(
        "topomend_operator_pool_fragmentation_ratio", {"pool": pool, "resource": resource}
    )


def values(snapshot: Snapshot, *, leads: bool = True) -> Callable[..., float | None]:
    return scraped(collector_of(snapshot, leads=leads))


def test_pods_that_hold_something_and_pods_that_wait_are_typical() -> None:
    assert values(snapshot_of(HALVED))() == 0.0
    waiting = snapshot_of(HALVED, pods=[gated_pod("g", 4)])
    assert values(waiting)() == pytest.approx(4 / (2 + 2 + 4))
    assert values(snapshot_of(HALVED, pods=[refused_pod("r", 4)]))() == pytest.approx(4 / (2 + 2 + 4))


def test_a_pool_without_pods_or_without_free_cpus_has_no_number_instead_of_0() -> None:
    assert values(snapshot_of(node_state(name="a")))() is None
    full = node_state(name="a", pods=[guaranteed_pod("x", 3), guaranteed_pod("y", 4)])
    assert values(snapshot_of(full))() is None
    assert values(Snapshot())() is None


def test_each_pool_has_its_own_typical_pods() -> None:
    other = node_state(name="b", pods=[guaranteed_pod("z", 4)])
    snapshot = snapshot_of(HALVED, other)
    labelled = replace(snapshot, nodes={name: node(name, labels={POOL: f"pool-{name}"}) for name in "ab"})
    value = values(labelled)
    assert value("pool-a") == 0.0
    assert value("pool-b") == 1.0, "3 CPUs are left there"


def test_assumed_pods_have_taken_their_room() -> None:
    snapshot = snapshot_of(HALVED)
    assumed = replace(snapshot.publications["a"], assumed_pods=(guaranteed_pod("q", 2),))
    assert values(replace(snapshot, publications={"a": assumed}))() == 1.0


@pytest.mark.parametrize("fields", [{"ready": False}, {"unschedulable": True}])
def test_a_node_that_takes_no_pods_does_not_count(fields: dict[str, bool]) -> None:
    snapshot = snapshot_of(HALVED)
    assert values(replace(snapshot, nodes={"a": node("a", **fields)}))() is None


def test_an_operator_that_only_watches_shows_none() -> None:
    assert values(snapshot_of(HALVED), leads=False)() is None


def test_a_node_is_asked_again_only_if_it_or_the_kinds_of_pods_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _noting(monkeypatch)
    shown = [snapshot_of(HALVED, node_state(name="b"))]
    collector = Fragmentation(lambda: shown[0], lambda: True)
    list(collector.collect())
    confirmed = replace(shown[0].publications["b"], heartbeat="later", confirmed="9")
    shown[0] = replace(shown[0], publications={**shown[0].publications, "b": confirmed})
    list(collector.collect())
    assert sorted(asked) == ["a", "b"]
    fuller = replace(confirmed, assumed_pods=(guaranteed_pod("q", 2),))
    shown[0] = replace(shown[0], publications={**shown[0].publications, "b": fuller})
    list(collector.collect())
    assert asked[2:] == ["b"]
    monkeypatch.setattr(fragmentation, "MIX_SECONDS", 0.0)
    shown[0] = replace(shown[0], gated=snapshot_of(pods=[gated_pod("g", 4)]).gated)
    list(collector.collect())
    assert sorted(asked[3:]) == ["a", "b"]


def test_a_scrape_without_time_goes_on_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragmentation, "MIX_SECONDS", 0.0)
    collector = collector_of(snapshot_of(HALVED))
    monkeypatch.setattr(fragmentation, "ASKING_SECONDS", -1.0)
    assert scraped(collector)() is None
    monkeypatch.setattr(fragmentation, "ASKING_SECONDS", 10.0)
    assert scraped(collector)() == 0.0


def test_a_node_that_has_changed_keeps_its_answers_until_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [snapshot_of(HALVED)]
    collector = Fragmentation(lambda: shown[0], lambda: True)
    assert scraped(collector)() == 0.0
    fuller = replace(shown[0].publications["a"], assumed_pods=(guaranteed_pod("q", 2),))
    shown[0] = replace(shown[0], publications={"a": fuller})
    monkeypatch.setattr(fragmentation, "ASKING_SECONDS", -1.0)
    assert scraped(collector)() == 0.0
    monkeypatch.setattr(fragmentation, "ASKING_SECONDS", 60.0)
    assert scraped(collector)() == 1.0


def test_a_node_that_takes_too_long_is_left_out_until_pods_are_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ["a"]
    ask = Questions.ask

    def slowly(questions: Questions, state: NodeState, *known: object) -> object:
        if state.name in slow:
            raise Overspent(state.name)
        return ask(questions, state, *known)  # type: ignore[arg-type]

    monkeypatch.setattr(Questions, "ask", slowly)
    value = scraped(collector_of(snapshot_of(HALVED)))
    assert value() is None
    slow.clear()
    assert value() is None
    monkeypatch.setattr(fragmentation, "MIX_SECONDS", 0.0)
    assert value() == 0.0


def test_a_node_that_breaks_replay_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Questions.ask

    def breaking(questions: Questions, state: NodeState, *known: object) -> object:
        if state.name == "b":
            raise ZeroDivisionError
        return ask(questions, state, *known)  # type: ignore[arg-type]

    monkeypatch.setattr(Questions, "ask", breaking)
    assert values(snapshot_of(HALVED, node_state(name="b")))() == 0.0


def test_a_waiting_pod_that_cannot_be_counted_fails_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(*_: object) -> object:
        raise ZeroDivisionError

    value = scraped(collector_of(snapshot_of(HALVED, pods=[gated_pod("g", 4)])))
    with monkeypatch.context() as broken:
        broken.setattr(fragmentation, "kinds_waiting", breaking)
        assert value() is None
    assert value() is not None


def _noting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that are asked from now on."""
    asked: list[str] = []
    ask = Questions.ask

    def noting(questions: Questions, state: NodeState, *known: object) -> object:
        asked.append(state.name)
        return ask(questions, state, *known)  # type: ignore[arg-type]

    monkeypatch.setattr(Questions, "ask", noting)
    return asked
