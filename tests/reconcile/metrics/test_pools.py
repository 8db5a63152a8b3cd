"""Figures of pools of nodes: which amounts, of which nodes, and how much a scrape asks."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.builders import guaranteed_pod, node, node_state, running, snapshot_of
from tests.reconcile.threads import at_once

from topomend.alignment.container import ContainerAlignment, align_allocation
from topomend.cache.snapshot import Publication, Snapshot
from topomend.model.nodes.node_pool import MAX_POOLS, NAMING_LABELS, NO_POOL, OTHERS
from topomend.model.nodes.node_state import ContainerAllocation, Device, NodeState, PodAllocation
from topomend.reconcile.metrics import pools
from topomend.reconcile.metrics.pools import MAX_RESOURCES, Pools

POOL = NAMING_LABELS[-1]


def scraped(snapshot: Snapshot, *, leads: bool = True) -> Callable[..., float | None]:
    """The value of a metric as a scrape of this snapshot finds it."""
    registry = CollectorRegistry()
    registry.register(Pools(lambda: snapshot, lambda: leads))
    return lambda name, **labels: registry.get_sample_value(f"topomend_operator_pool_{name}", labels)


def cluster() -> Snapshot:
    """Two nodes of two NUMA nodes in pool numa, one of which runs a pod, and one node without a pool."""
    small, large = (
        node_state("numa:2 cores:4", name="a"),
        running(node_state("numa:2 cores:8", name="b"), guaranteed_pod("p", 3)),
    )
    snapshot = snapshot_of(small, large, node_state("numa:1 cores:6", name="c"))
    return replace(snapshot, nodes={name: node(name, labels={POOL: "numa"}) for name in "ab"} | {"c": node("c")})


def test_free_is_a_sum_and_the_largest_admissible_request_fits_one_numa_node() -> None:
    value = scraped(cluster())
    free_of_a, free_of_b = 2 * 4 - 1, 2 * 8 - 1 - 3
    assert value("free", pool="numa", resource="cpu") == free_of_a + free_of_b
    assert value("largest_admissible", pool="numa", resource="cpu") == 8
    assert value("largest_admissible", pool=NO_POOL, resource="cpu") == 5
    assert value("held", pool="numa", resource="cpu") == 3
    assert value("aligned", pool="numa", resource="cpu") == 3


def test_what_is_split_over_numa_nodes_is_held_and_not_aligned() -> None:
    split = running(node_state("numa:2 cores:4", name="a", policy="best-effort"), guaranteed_pod("p", 6))
    value = scraped(replace(snapshot_of(split), nodes={"a": node("a")}))
    assert value("held", pool=NO_POOL, resource="cpu") == 6
    assert value("aligned", pool=NO_POOL, resource="cpu") == 0


def test_nodes_are_known_unknown_or_without_an_agent() -> None:
    snapshot = cluster()
    silent = replace(snapshot.publications["a"], agent_problem="its agent is silent")
    nodes = {**snapshot.nodes, "windows": node("windows")}
    value = scraped(replace(snapshot, publications={**snapshot.publications, "a": silent}, nodes=nodes))
    assert value("nodes", pool="numa", state="known") == 1
    assert value("nodes", pool="numa", state="unknown") == 1
    assert value("nodes", pool=NO_POOL, state="without-agent") == 1
    assert value("nodes", pool=NO_POOL, state="unknown") == 0
    assert value("free", pool="numa", resource="cpu") == 2 * 8 - 1 - 3


def test_an_operator_that_only_watches_shows_no_pool() -> None:
    assert scraped(cluster(), leads=False)("nodes", pool="numa", state="known") is None


def test_pools_and_resources_are_bounded_whatever_nodes_say() -> None:
    states = [node_state("numa:1 cores:2", name=f"n{number:03}") for number in range(MAX_POOLS + 20)]
    devices = tuple(Device(f"example.com/{number:03}", "0", (0,)) for number in range(MAX_RESOURCES + 20))
    states[0] = replace(states[0], devices=devices)
    nodes = {state.name: node(state.name, labels={POOL: state.name}) for state in states}
    registry = CollectorRegistry()
    registry.register(Pools(lambda: replace(snapshot_of(*states), nodes=nodes), lambda: True))
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert len({sample.labels["pool"] for sample in samples}) == MAX_POOLS + 1
    assert OTHERS in {sample.labels["pool"] for sample in samples}
    assert len({sample.labels.get("resource") for sample in samples} - {None}) == MAX_RESOURCES


def test_a_node_is_asked_again_only_when_its_room_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    figures = pools.figures_of

    def noting(publication: Publication) -> object:
        asked.append(publication.state.name)
        return figures(publication)

    monkeypatch.setattr(pools, "figures_of", noting)
    shown = [cluster()]
    collector = Pools(lambda: shown[0], lambda: True)
    list(collector.collect())
    confirmed = replace(shown[0].publications["b"], heartbeat="later", confirmed="9")
    shown[0] = replace(shown[0], publications={**shown[0].publications, "b": confirmed})
    list(collector.collect())
    assert sorted(asked) == ["a", "b", "c"]
    fuller = replace(confirmed, assumed_pods=(guaranteed_pod("q", 2),))
    shown[0] = replace(shown[0], publications={**shown[0].publications, "b": fuller})
    list(collector.collect())
    assert asked[3:] == ["b"]


def test_a_scrape_without_time_keeps_what_is_known_and_goes_on_at_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "ASKING_SECONDS", -1.0)
    snapshot = cluster()
    collector = Pools(lambda: snapshot, lambda: True)
    (nodes, free, *_) = collector.collect()
    assert nodes.samples
    assert not free.samples
    monkeypatch.setattr(pools, "ASKING_SECONDS", 10.0)
    (_, free, *_) = collector.collect()
    assert free.samples


def test_several_may_scrape_at_once_while_nodes_come_and_go() -> None:
    few, many = snapshot_of(node_state(name="a")), snapshot_of(*(node_state(name=f"n{number}") for number in range(30)))
    shown = itertools.cycle((few, many))
    collector = Pools(lambda: next(shown), lambda: True)

    def scrape() -> None:
        for _ in range(20):
            assert len(list(collector.collect())) == 5

    at_once([scrape] * 4)


def test_a_node_that_cannot_be_read_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(state: NodeState, pod: PodAllocation, container: ContainerAllocation) -> ContainerAlignment:
        if state.name == "b":
            raise KeyError(99)
        return align_allocation(state, pod, container)

    monkeypatch.setattr(pools, "align_allocation", failing)
    value = scraped(cluster())
    assert value("free", pool="numa", resource="cpu") == 2 * 4 - 1
    assert value("free", pool=NO_POOL, resource="cpu") == 5
    assert "b is left out of the metrics of pools: unexpected: KeyError(99)" in caplog.text
