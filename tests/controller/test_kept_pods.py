"""Refused pods that the operator leaves alone: no controller is known to recreate them, or they have run already."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.clusters import NODE_A, Cluster, events_of, pod
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.resources import PODS, Resource
from topomend.wire.group import RELAUNCH_PINNED_ANNOTATION

pytestmark = pytest.mark.cluster

CONFIG_MAPS = Resource("v1", "configmaps")
REFUSED = {
    "phase": "Failed",
    "reason": "TopologyAffinityError",
    "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
}
ENDED = {"exitCode": 1, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}


def _owned_by(kind: str, api_version: str, name: str, uid: str) -> list[dict[str, Any]]:
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def test_the_refused_pod_of_an_owner_that_makes_no_other_is_kept(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    operator = start_operator()
    operator.wait_until_it_watches()
    owner = fragmented.client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workflow"}}, "default"
    )
    references = _owned_by("ConfigMap", "v1", "workflow", owner["metadata"]["uid"])
    made = fragmented.create(pod("step", 3, node=NODE_A, ownerReferences=references))
    skipped = eventually("the reason", lambda: events_of(fragmented, made, "RelaunchSkipped"))
    assert skipped[0]["note"] == "ConfigMap workflow decides what becomes of its failed pods"
    fragmented.create(pod("after", 3, preferred=NODE_A))
    eventually("a later pod to be relaunched", lambda: fragmented.running("after"))
    assert fragmented.phase("step") == "Failed"
    fragmented.client.delete(CONFIG_MAPS, "workflow", "default", uid=owner["metadata"]["uid"])
    assert "Traceback" not in operator.text()


def test_a_pod_that_restarts_no_container_does_not_run_twice_unless_its_user_says_so(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """What a kubelet writes that restarts under another policy: the pod had run, and is refused now."""
    operator = start_operator()
    operator.wait_until_it_watches()
    once = pod("once", 1, node=NODE_A)
    again = pod("again", 1, node=NODE_A, annotations={"topomend.io/relaunch-started": "true"})
    for content in (once, again):
        content["spec"]["restartPolicy"] = "Never"
        fragmented.create(content)
        name = content["metadata"]["name"]
        running = eventually(f"{name} to be ready", partial(_ready, fragmented, name))  # its kubelet says no more
        statuses = [
            {**status, "ready": False, "state": {"terminated": ENDED}}
            for status in running["status"]["containerStatuses"]
        ]
        fragmented.client.merge(
            PODS, name, {"status": REFUSED | {"containerStatuses": statuses}}, "default", subresource="status"
        )
    skipped = eventually("the reason", lambda: events_of(fragmented, fragmented.get("once"), "RelaunchSkipped"))
    assert "restartPolicy Never promises that it runs once" in skipped[0]["note"]
    eventually(
        "the other to be relaunched",
        lambda: "topomend.io/replaces" in fragmented.get("again")["metadata"]["annotations"],
    )
    # Its kubelet ends it, and has the last word.
    eventually("the first to stay", lambda: fragmented.phase("once") == "Failed")
    assert "Traceback" not in operator.text()


def _ready(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """The pod, once its kubelet has found it ready."""
    content = cluster.get(name)
    ready = {"type": "Ready", "status": "True"}.items()
    return content if any(ready <= condition.items() for condition in content["status"].get("conditions", ())) else None


def test_a_pod_that_its_user_pinned_to_a_node_is_not_moved_unless_he_says_so(
    fragmented: Cluster, start_operator: Callable[..., Operator]
) -> None:
    """What a scheduler bound is moved: the pod of the same size that went to the same node by preference."""
    operator = start_operator()
    operator.wait_until_it_watches()
    stays = fragmented.create(pod("stays", 3, node=NODE_A, annotations={RELAUNCH_PINNED_ANNOTATION: "no"}))
    (skipped,) = eventually("the reason", lambda: events_of(fragmented, stays, "RelaunchSkipped"))
    assert f"stays was created with nodeName {NODE_A}" in skipped["note"]
    eventually("the explanation", lambda: events_of(fragmented, stays, "TopologyRefusalExplained"))
    moved = {"says-so": pod("says-so", 3, node=NODE_A), "scheduled": pod("scheduled", 3, preferred=NODE_A)}
    for name, content in moved.items():
        fragmented.create(content)
        eventually(
            f"{name} to be relaunched",
            lambda: "topomend.io/replaces" in fragmented.get(name)["metadata"].get("annotations", {}),  # noqa: B023
        )
    assert fragmented.phase("stays") == "Failed"
    assert "Traceback" not in operator.text()
