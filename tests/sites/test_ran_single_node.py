"""A RAN node alone: a pod for which it has no room gets one answer, no storm, and the room once there is some."""

from collections.abc import Iterator

import pytest
from tests.clusters import DEPLOYMENTS, events_of
from tests.sites.site import FEW, SITES, Site, node_of, site
from tests.waiting import consistently, eventually

from topomend.reconcile.settings import OBSERVE

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(300)]

FOLDER = "ran-single-node"

NODE = node_of(
    "sno", "sockets:2 cores:10 threads:2 memory:48Gi hugepages-1Gi:5", SITES / FOLDER / "performance-profile.yaml"
)

ANSWER = "would be admitted with 8 CPUs or once default/"


@pytest.fixture
def acting() -> Iterator[Site]:
    with site([NODE]) as up:
        yield filled(up)


@pytest.fixture
def observed() -> Iterator[Site]:
    with site([NODE], OBSERVE) as up:
        yield filled(up)


def filled(up: Site) -> Site:
    """A site on which the two parts of the workload run, each on a NUMA node of its own."""
    up.apply(f"{FOLDER}/workloads.yaml")
    for app in ("du", "cu"):
        eventually(f"{app} to run", lambda: up.running_of(app))  # noqa: B023
    return up


def test_a_deployment_without_room_has_one_answer_and_one_waiting_pod(acting: Site) -> None:
    acting.apply(f"{FOLDER}/analytics.yaml")
    waiting = eventually("its pod to wait gated", lambda: acting.gated_of("analytics"))
    deployment = acting.client.get(DEPLOYMENTS, "analytics", "default")
    assert ANSWER in acting.told(deployment, "UngateDeferred")
    eventually("the refused pods to be deleted", lambda: len(acting.pods_of("analytics")) == 1)
    before = acting.refused("analytics-")
    assert 1 <= len(before) <= FEW
    uid = waiting["metadata"]["uid"]
    consistently(
        "the one waiting pod", lambda: [pod["metadata"]["uid"] for pod in acting.pods_of("analytics")] == [uid], 5
    )
    assert acting.refused("analytics-") == before
    assert len(events_of(acting, deployment, "UngateDeferred")) == 1
    cu = acting.client.get(DEPLOYMENTS, "cu", "default")
    acting.client.delete(DEPLOYMENTS, "cu", "default", uid=cu["metadata"]["uid"])
    (running,) = eventually("it to run", lambda: acting.running_of("analytics"))
    assert running["metadata"]["uid"] == uid
    eventually("it to be aligned", lambda: acting.is_aligned(running["metadata"]["name"]))


def test_an_observer_answers_once_and_changes_nothing(observed: Site) -> None:
    (deployment,) = observed.manifests(f"{FOLDER}/analytics.yaml")
    template = deployment["spec"]["template"]
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "analytics"}, "spec": template["spec"]}
    made = observed.create(bare)
    assert ANSWER in observed.told(made, "TopologyRefusalExplained")
    assert "the operator only observes" in observed.told(made, "RelaunchSkipped")
    names = sorted(pod["metadata"]["name"] for pod in observed.pods())
    consistently("every pod", lambda: sorted(pod["metadata"]["name"] for pod in observed.pods()) == names, 5)
    assert [len(events_of(observed, made, reason)) for reason in ("TopologyRefusalExplained", "RelaunchSkipped")] == [
        1,
        1,
    ]
    assert observed.refused() == {made["metadata"]["uid"]}
