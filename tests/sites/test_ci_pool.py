"""A pool of CI runners whose controller deletes a failed pod at once: steered, there is no failed pod to delete.

Jobs of 1, 2, 4 and 8 GPUs share its machines: those of 8 have a whole one, all others are on one processor.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from tests.clusters import events_of
from tests.sites.site import SITES, Site, again_and_again, node_of, site
from tests.waiting import consistently, eventually

from topomend.kube.errors import NotFound
from topomend.kube.resources import EVENTS, PODS
from topomend.sandbox import ContainerResources

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(600)]

FOLDER, NAMESPACE = "ci-pool", "arc-runners"

SHAPE, GPU = "p5.48xlarge", "nvidia.com/gpu"

PROCESSORS = 4
"""Of both nodes together."""


@pytest.fixture(scope="module")
def pool() -> Iterator[Site]:
    """Two nodes and the namespace of the runners, steered."""
    with site([node_of(name, SHAPE, SITES / FOLDER / "kubelet.yaml") for name in ("node-1", "node-2")]) as up:
        up.apply(f"{FOLDER}/namespace.yaml")
        eventually("new pods to be gated", lambda: _is_gated(up))
        yield up


def _is_gated(up: Site) -> bool:
    (content,) = [pod for pod in up.manifests(f"{FOLDER}/jobs.yaml") if pod["metadata"]["name"] == "one-gpu-a"]
    made = up.client.create(PODS, content, NAMESPACE, dry_run=True)
    return bool(made["spec"].get("schedulingGates"))


@contextmanager
def runners(up: Site) -> Iterator[list[str]]:
    """Runners' hooks: each failed pod is deleted as soon as it is seen. Yields the names of those that were."""
    deleted: list[str] = []

    def delete_failed() -> None:
        for pod in up.client.list(PODS, namespace=NAMESPACE).items:
            if pod["status"].get("phase") == "Failed" and "deletionTimestamp" not in pod["metadata"]:
                deleted.append(pod["metadata"]["name"])
                with suppress(NotFound):
                    up.remove(pod)

    with again_and_again(delete_failed, 0.02):
        yield deleted


@pytest.fixture
def empty(pool: Site) -> Iterator[Site]:
    yield pool
    for content in pool.client.list(PODS, namespace=NAMESPACE).items:
        pool.remove(content)
    eventually("the pool to be empty", lambda: not names(pool))


def names(up: Site, phase: str = "") -> set[str]:
    pods = up.client.list(PODS, namespace=NAMESPACE).items
    return {pod["metadata"]["name"] for pod in pods if phase in ("", pod["status"].get("phase"))}


def refusals(up: Site) -> set[str]:
    """The UIDs of the pods that a kubelet refused."""
    events = up.client.list(EVENTS, namespace=NAMESPACE, fields="reason=TopologyAffinityError").items
    return {event["regarding"]["uid"] for event in events}


def taken(up: Site) -> set[tuple[str, int]]:
    """The processors of which a running pod holds something: of which node, and which NUMA node."""
    return {
        (pod["spec"]["nodeName"], number)
        for pod in up.client.list(PODS, namespace=NAMESPACE).items
        if pod["status"].get("phase") == "Running"
        for number in held(up, pod["metadata"]["name"]).numa_nodes
    }


def held(up: Site, job: str) -> ContainerResources:
    """What the container of a running job holds."""
    (container,) = up.sandbox.resources(job, NAMESPACE)
    return container


def settled(up: Site) -> list[dict[str, Any]]:
    """The pods that wait once all jobs were applied: those of four GPUs for which no processor is free."""
    up.apply(f"{FOLDER}/jobs.yaml", f"{FOLDER}/more-jobs.yaml")
    asked = {content["metadata"]["name"] for name in FILES for content in up.manifests(f"{FOLDER}/{name}")}

    def waiting() -> list[dict[str, Any]]:
        pods = [up.get(name, NAMESPACE) for name in asked - names(up, "Running")]
        if len(taken(up)) < PROCESSORS:
            return []
        return pods if all(events_of(up, pod, "UngateDeferred") for pod in pods) else []

    return eventually("each pod to run, or to be told what it waits for", waiting, 60)


FILES = ("jobs.yaml", "more-jobs.yaml")
"""They ask for 28 GPUs, and the pool has 16: as many as the first file asks for."""

ONE, ALL = 1, 2
"""Processors that a job has of its machine, which has two."""

SIZES = {
    "eight-gpus": (8, ALL),
    "one-gpu-a": (1, ONE),
    "one-gpu-b": (1, ONE),
    "two-gpus": (2, ONE),
    "four-gpus-a": (4, ONE),
}
"""GPUs and processors of each job of the first file."""


def test_no_job_fails_while_the_pool_fills_and_one_that_waits_gets_the_room(empty: Site) -> None:
    before = refusals(empty)
    with runners(empty) as deleted:
        waiting = {pod["metadata"]["name"]: pod for pod in settled(empty)}
        found = {job: held(empty, job) for job in names(empty, "Running")}
        assert {job: (len(its.devices[GPU]), len(its.numa_nodes)) for job, its in found.items()} == SIZES
        for pod in waiting.values():
            assert pod["spec"]["schedulingGates"]
            assert "no node admits it now: 2 of 2 nodes" in empty.told(pod, "UngateDeferred")
        first = next(name for name in sorted(names(empty, "Running")) if name.startswith("four-gpus"))
        empty.remove(empty.get(first, NAMESPACE))
        (came, *_) = eventually("one of them to run", lambda: names(empty, "Running") & waiting.keys())
        assert empty.get(came, NAMESPACE)["metadata"]["uid"] == waiting[came]["metadata"]["uid"]
    assert deleted == []
    assert refusals(empty) == before


def test_a_job_of_eight_gpus_waits_for_a_machine_and_gets_it_from_those_of_four(empty: Site) -> None:
    before = refusals(empty)
    with runners(empty) as deleted:
        empty.apply(f"{FOLDER}/more-jobs.yaml")
        fours = {content["metadata"]["name"] for content in empty.manifests(f"{FOLDER}/more-jobs.yaml")}
        eventually("three of four GPUs to be on two machines", lambda: names(empty, "Running") == fours, 60)
        (content,) = [pod for pod in empty.manifests(f"{FOLDER}/jobs.yaml") if pod["metadata"]["name"] == "eight-gpus"]
        made = empty.client.create(PODS, content, NAMESPACE)
        assert "no node admits it now: 2 of 2 nodes" in empty.told(made, "UngateDeferred")
        ending = empty.get(min(fours), NAMESPACE)["spec"]["nodeName"]
        for pod in [empty.get(name, NAMESPACE) for name in fours]:
            if pod["spec"]["nodeName"] == ending:
                empty.remove(pod)
        eventually("it to run", lambda: "eight-gpus" in names(empty, "Running"), 60)
        came = empty.get("eight-gpus", NAMESPACE)
        assert (came["metadata"]["uid"], came["spec"]["nodeName"]) == (made["metadata"]["uid"], ending)
        its = held(empty, "eight-gpus")
        assert (len(its.devices[GPU]), len(its.numa_nodes)) == SIZES["eight-gpus"]
    assert deleted == []
    assert refusals(empty) == before


def test_a_pod_that_the_hook_binds_itself_is_explained_and_never_brought_back(empty: Site) -> None:
    assert settled(empty), "no node has four GPUs on a processor"
    (content,) = empty.manifests(f"{FOLDER}/pinned.yaml")
    with runners(empty) as deleted:
        made = empty.client.create(PODS, content, NAMESPACE)
        assert "schedulingGates" not in made["spec"]
        eventually("its hook to delete it", lambda: deleted == ["pinned"])
        assert "refuses" in empty.told(made, "TopologyRefusalExplained")
        consistently("its place", lambda: "pinned" not in names(empty), 5)
    assert len(events_of(empty, made, "TopologyRefusalExplained")) == 1
