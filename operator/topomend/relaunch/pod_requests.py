"""The requests about pods that are no relaunch: one that was gated at birth let go, a corpse deleted.

Each holds for the pod as it was seen alone: what has changed since is read anew by whoever asked.
"""

from collections.abc import Sequence

from topomend.kube.client import PODS, Client
from topomend.kube.errors import Conflict, NotFound
from topomend.model.cluster import WatchedPod
from topomend.relaunch import manifest
from topomend.wire.cluster import read_watched_pod


def read(client: Client, namespace: str, name: str) -> WatchedPod | None:
    """The pod of this name as it is now; None where there is none. Raises APIError, MalformedObject."""
    try:
        return read_watched_pod(client.get(PODS, name, namespace))
    except NotFound:
        return None


def ungate(client: Client, pod: WatchedPod, hostnames: Sequence[str]) -> bool:
    """Narrow a gated pod to ``hostnames`` and take our gate off. False where it is not as it was seen any more.

    Raises APIError.
    """
    try:
        client.merge(PODS, pod.name, manifest.launch(pod, hostnames), pod.namespace)
    except (Conflict, NotFound):
        return False
    return True


def clear(client: Client, failed_pod: WatchedPod) -> bool:
    """Delete a failed pod, if it is there still. False where it is not as it was seen any more. Raises APIError."""
    try:
        client.delete(PODS, failed_pod.name, failed_pod.namespace, uid=failed_pod.uid, version=failed_pod.version)
    except NotFound:
        return True
    except Conflict:
        return False
    return True
