"""A GPU cloud's preset: NUMA node 0 has less memory than NUMA node 1, and a pod for which that matters is told."""

from collections.abc import Iterator

import pytest
from tests.clusters import DEPLOYMENTS
from tests.sites.site import FEW, SITES, Site, node_of, site
from tests.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(600)]

FOLDER = "gpu-cloud"

SHAPE = "sockets:2 cores:32 threads:2 memory:800Gi device:nvidia.com/gpu@0=4,1=4"


@pytest.fixture(scope="module")
def cloud() -> Iterator[Site]:
    with site([node_of("node-1", SHAPE, SITES / FOLDER / "kubelet.yaml")]) as up:
        yield up


@pytest.fixture
def empty(cloud: Site) -> Iterator[Site]:
    yield cloud
    cloud.remove_owners(DEPLOYMENTS)


def test_half_a_node_is_numa_node_1_and_the_second_half_is_told_what_is_left(empty: Site) -> None:
    empty.apply(f"{FOLDER}/half.yaml")
    (running,) = eventually("one to run", lambda: empty.running_of("half"))
    name = running["metadata"]["name"]
    waiting = eventually("the other one to wait gated", lambda: empty.gated_of("half"))
    assert "would be admitted with 817856Mi of memory" in empty.told(waiting, "UngateDeferred")
    (resources,) = empty.sandbox.resources(name)
    assert (set(resources.memory_numa_nodes), set(resources.numa_nodes)) == ({1}, {1})
    assert len(empty.refused("half-")) <= FEW


def test_after_a_pod_of_the_whole_node_each_half_is_free_again(empty: Site) -> None:
    empty.apply(f"{FOLDER}/whole.yaml")
    (running,) = eventually("it to run", lambda: empty.running_of("whole"))
    (resources,) = empty.sandbox.resources(running["metadata"]["name"])
    assert resources.memory_numa_nodes == {0, 1}
    made = empty.client.get(DEPLOYMENTS, "whole", "default")
    empty.client.delete(DEPLOYMENTS, "whole", "default", uid=made["metadata"]["uid"])
    eventually("it to be gone", lambda: not empty.pods_of("whole"))
    (content,) = empty.manifests(f"{FOLDER}/half.yaml")
    content["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "798Gi"
    empty.client.create(DEPLOYMENTS, content, "default")
    both = eventually("both halves to run", lambda: empty.running_of("half", 2))
    held = [empty.sandbox.resources(pod["metadata"]["name"])[0].numa_nodes for pod in both]
    assert sorted(map(sorted, held)) == [[0], [1]]
