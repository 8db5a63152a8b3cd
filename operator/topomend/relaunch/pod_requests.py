"""Requests about single pods outside a relaunch: read one, ungate one that was gated at creation, say why one is
not scheduled, nominate one for a node, delete a failed one.

Each write names the uid and the resourceVersion of the pod that it was decided on. Where the pod has changed since,
nothing is written and the caller decides again.
"""

from topomend.kube.client import Client
from topomend.kube.errors import Conflict, NotFound
from topomend.kube.resources import PODS
from topomend.model.narrowing import Narrowing
from topomend.model.pods.scheduling import WatchedPod
from topomend.relaunch import manifest
from topomend.relaunch.placeholder import Placeholder
from topomend.wire.pods.scheduling import read_watched_pod


def read(client: Client, namespace: str, name: str) -> WatchedPod | None:
    """The pod of this name as the API server has it; None where there is none. Raises APIError, MalformedObject."""
    try:
        return read_watched_pod(client.get(PODS, name, namespace))
    except NotFound:
        return None


def ungate(client: Client, pod: WatchedPod, narrowing: Narrowing) -> bool:
    """Narrow a gated pod, and remove our gate.

    Returns False, and writes nothing, where the pod has changed or is gone. Raises APIError.
    """
    try:
        client.merge(PODS, pod.name, manifest.launch(pod, narrowing), pod.namespace)
    except (Conflict, NotFound):
        return False
    return True


def say_not_scheduled(
    client: Client, pod: WatchedPod | Placeholder, namespace: str, *, reason: str, message: str
) -> bool:
    """Write why a gated pod is not scheduled, as kube-scheduler does for others: its condition PodScheduled.

    Returns False, and writes nothing, where the pod has changed or is gone. Raises APIError.
    """
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    patch = {"metadata": {"uid": pod.uid, "resourceVersion": pod.version}, "status": {"conditions": [condition]}}
    try:
        client.patch_status(PODS, pod.name, patch, namespace)
    except (Conflict, NotFound):
        return False
    return True


def nominate(client: Client, pod: WatchedPod, node: str) -> bool:
    """Have kube-scheduler keep the totals of ``node`` free for a gated pod, of no node where it is empty.

    The scheduler counts a nominated pod against its node for every pod of no higher priority, whatever gates the
    nominated one has (pkg/scheduler/backend/queue/nominator.go). Before 1.37 one that has just started counts it only
    from its next change on. Returns False, and writes nothing, where the pod has changed or is gone. Raises APIError.
    """
    patch = {"metadata": {"uid": pod.uid, "resourceVersion": pod.version}, "status": {"nominatedNodeName": node}}
    try:
        client.patch_status(PODS, pod.name, patch, pod.namespace)
    except (Conflict, NotFound):
        return False
    return True


def clear(client: Client, failed_pod: WatchedPod) -> bool:
    """Delete a failed pod. Returns True also where it is already gone.

    Returns False, and deletes nothing, where the pod has changed. Raises APIError.
    """
    try:
        client.delete(PODS, failed_pod.name, failed_pod.namespace, uid=failed_pod.uid, version=failed_pod.version)
    except NotFound:
        return True
    except Conflict:
        return False
    return True
