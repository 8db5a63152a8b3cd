"""Pods that wait for topomend while it is upgraded: a refused one, a gated one, and the replica of a storm."""

from tests.waiting import eventually
from verify.e2e.steps.installed import Installed, name_of, uid_of
from verify.e2e.steps.pods import NAMESPACE, PODS, deployment, has_run, is_gated, is_running, pod


def create_waiting_pods(story: Installed, here: str) -> list[str]:
    """On ``here``, which is full: a refused pod, a gated one, and a replica whose ReplicaSet is braked.

    Returns the names of the pods without a controller, which are to run once.
    """
    story.cluster.api.create(PODS, pod("refused", here, "for", "1s", restart="Never"))
    story.explained("refused")
    storm = deployment("storm", here, 1)
    story.cluster.api.create(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", storm)
    eventually("the replica to be gated", lambda: replica(story), 30)
    story.cluster.kubectl("label", "namespace", NAMESPACE, "topomend.io/steer=enabled")
    eventually("pods to be gated", story.gates_new_pods, 30)
    story.cluster.api.create(PODS, pod("gated", here, "for", "1s", restart="Never"))
    return ["refused", "gated"]


def replica(story: Installed) -> str:
    """The name of the storm's replica that is gated or runs; empty while there is none."""
    pods = [item for item in story.cluster.api.items(PODS) if name_of(item).startswith("storm")]
    return next((name_of(item) for item in pods if is_gated(item) or is_running(item)), "")


def ran(story: Installed) -> dict[str, set[str]]:
    """By name, the uids of the pods of which a container has started."""
    uids: dict[str, set[str]] = {}
    for moment in story.pods.moments():
        if has_run(moment.object):
            uids.setdefault(name_of(moment.object), set()).add(uid_of(moment.object))
    return uids
