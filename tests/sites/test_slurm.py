"""Slurm's workers on 8 NUMA nodes: the whole node is told why not, its parts fill it in any order, nothing storms."""

from collections.abc import Iterator

import pytest
from tests.clusters import events_of
from tests.sites.site import FEW, SITES, Site, node_of, site
from tests.waiting import consistently, eventually

from topomend.kube.resources import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(600)]

FOLDER = "slurm"

STATEFUL_SETS = Resource("apps/v1", "statefulsets")

SHAPE = "sockets:2 numa:4 cores:16 threads:2 memory:256Gi device:nvidia.com/gpu@0=2,2=2,4=2,6=2"

WHY = "nvidia.com/gpu (8) prefers 4, cpu (240) prefers 8, memory (1.8Ti) prefers 8"

APPS = {"slurmd-gpu": 2, "slurmd-two-gpus": 3}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Site]:
    with site([node_of("node-1", SHAPE, SITES / FOLDER / "kubelet.yaml")]) as up:
        yield up


@pytest.fixture
def empty(slurm: Site) -> Iterator[Site]:
    yield slurm
    slurm.remove_owners(STATEFUL_SETS)


def test_a_worker_of_the_whole_node_is_told_why_and_does_not_storm(empty: Site) -> None:
    empty.apply(f"{FOLDER}/whole-node.yaml")
    waiting = eventually("its pod to wait gated", lambda: empty.gated_of("slurmd-node"))
    assert WHY in empty.told(waiting, "NoNodeCanEverAdmit")
    before = empty.refused("slurmd-node-")
    assert 1 <= len(before) <= FEW
    uid = waiting["metadata"]["uid"]
    consistently("the waiting pod", lambda: empty.get("slurmd-node-0")["metadata"]["uid"] == uid, 5)
    assert empty.refused("slurmd-node-") == before
    assert len(events_of(empty, waiting, "NoNodeCanEverAdmit")) == 1


@pytest.mark.parametrize("order", [tuple(APPS), tuple(reversed(APPS))], ids=["single first", "pairs first"])
def test_workers_of_one_and_two_gpus_fill_the_node_in_any_order(empty: Site, order: tuple[str, ...]) -> None:
    before = empty.refused()
    sets = {content["metadata"]["name"]: content for content in empty.manifests(f"{FOLDER}/per-numa.yaml")}
    for app in order:
        empty.client.create(STATEFUL_SETS, sets[app], "default")
        running = eventually(f"{app} to run", lambda: empty.running_of(app, APPS[app]), 60)  # noqa: B023
        for content in running:
            name = content["metadata"]["name"]
            eventually(f"{name} to be aligned", lambda: empty.is_aligned(name))  # noqa: B023
    assert empty.refused() == before
