"""topomend as installed on a cluster without MutatingAdmissionPolicy: its pods serve the webhook, by their Service."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.waiting import eventually
from verify.e2e import images
from verify.e2e.api import Object
from verify.e2e.cluster import Cluster
from verify.e2e.conftest import TAG
from verify.e2e.installed import OPERATOR, Installed, name_of, uid_of
from verify.e2e.node import Node
from verify.e2e.pods import NAMESPACE, PODS, deployment, is_gated, is_refused, is_running, pod

HERE, THERE = "node-1", "node-2"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
NEW_PODS = 100


@pytest.fixture(scope="module")
def story(archives: Mapping[str, Path]) -> Iterator[Installed]:
    imported = [archives["idle"], archives[TAG]]
    with Cluster.up([Node(HERE), Node(THERE)], imported, pause=images.IDLE, emulated_version="1.35") as cluster:
        running = Installed.to_be(cluster)
        running.install([HERE, THERE])
        yield running
        print("\n\nMeasured with the webhook, as installed:")
        for name, figure in running.figures.items():
            print(f"  {name:42} {figure}")
        assert running.unexpected_lines() == []


def test_the_operator_writes_its_webhooks_into_the_configurations(story: Installed) -> None:
    def written() -> list[str]:
        ours = [item for item in story.cluster.api.items(CONFIGURATIONS) if name_of(item).startswith("topomend-")]
        return sorted(name_of(item) for item in ours if item.get("webhooks"))

    expected = [f"topomend-{name}" for name in ("brake", "changes", "creator", "steer")]
    eventually("the webhooks", lambda: written() == expected, 30)


def test_a_refused_pod_has_its_creators_stamp_and_runs_elsewhere(story: Installed) -> None:
    eventually("new pods to be stamped", lambda: _stamp(story), 30)
    story.relaunch("pod", HERE, THERE)
    story.clear()


def test_a_storm_is_braked(story: Installed) -> None:
    replicas = 2
    for node, name in ((HERE, "here"), (THERE, "there")):
        story.fill(node, name)
    story.cluster.api.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment("storm", HERE, replicas))

    def gated() -> bool:
        return sum(is_gated(item) for item in story.cluster.api.items(PODS)) == replicas

    eventually("all replicas to wait behind a gate", gated, 30)
    time.sleep(8)
    moments = [moment.object for moment in story.pods.moments()]
    refused = {uid_of(item) for item in moments if name_of(item).startswith("storm") and is_refused(item)}
    story.figures["refused pods of a Deployment of 2"] = str(len(refused))
    assert 1 <= len(refused) <= 3 * replicas
    assert gated()
    story.clear()


def test_every_new_pod_of_a_steered_namespace_is_gated_also_while_an_operator_is_replaced(story: Installed) -> None:
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer=enabled")
    eventually("new pods to be gated", lambda: _is_gated_at_birth(story), 30)
    story.cluster.kubectl("delete", "pod", name_of(story.leader()), f"--namespace={OPERATOR}", "--wait=false")
    gated, seconds = 0, []
    for _ in range(NEW_PODS):
        began = time.monotonic()
        gated += _is_gated_at_birth(story)
        seconds.append(time.monotonic() - began)
        time.sleep(0.1)
    story.figures["new pods gated while the leader is deleted"] = f"{gated} of {NEW_PODS}"
    story.figures["a request for a new pod, median and worst"] = (
        f"{1000 * sorted(seconds)[NEW_PODS // 2]:.0f} ms, {1000 * max(seconds):.0f} ms"
    )
    assert gated == NEW_PODS
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer-")


def test_a_drain_leaves_no_webhook(story: Installed) -> None:
    story.wait_for_rollout()
    print(story.cluster.numa("drain"))
    assert not [item for item in story.cluster.api.items(CONFIGURATIONS) if name_of(item).startswith("topomend-")]
    story.cluster.api.create(PODS, pod("after", HERE))
    eventually("a pod to run as if nothing had been", lambda: is_running(story.cluster.api.get(f"{PODS}/after")), 60)


def _stamp(story: Installed) -> bool:
    return "topomend.io/creator" in _tried(story)["metadata"].get("annotations", {})


def _is_gated_at_birth(story: Installed) -> bool:
    return is_gated(_tried(story))


def _tried(story: Installed) -> Object:
    """A new pod as the API server would store it."""
    return story.cluster.api.create(f"{PODS}?dryRun=All", pod("tried", HERE))
