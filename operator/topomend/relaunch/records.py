"""Records of relaunches before they are written, and the one that made a pod."""

import json
from typing import Any

from topomend.kube.client import PODS, RELAUNCHES, Client
from topomend.kube.errors import NotFound
from topomend.model.cluster import WatchedPod
from topomend.model.relaunch import Relaunch
from topomend.relaunch import manifest
from topomend.wire.cluster import read_watched_pod
from topomend.wire.relaunch import read_relaunch, record_name

MAX_MANIFEST_BYTES = 1_000_000
"""A manifest of more bytes is not relaunched: an object may have 1.5 MiB in etcd, and a record holds more than this."""


def recorded(pod: WatchedPod, name: str, stripped: dict[str, Any], *, renames: bool) -> Relaunch:
    """The record of a refused pod, as it is written first; ``stripped`` is its manifest (``manifest.stripped``)."""
    return Relaunch(
        namespace=pod.namespace,
        name=name,
        pod_name=pod.name,
        pod_uid=pod.uid,
        refused_by=pod.node,
        reason=pod.reason,
        message=pod.message,
        attempt=pod.attempt + 1,
        manifest=manifest.renamed(stripped, pod.name, pod.attempt) if renames else stripped,
        manifest_hash=manifest.digest(stripped),
    )


def draft(client: Client, pod: WatchedPod, previous: Relaunch | None, *, renames: bool) -> Relaunch | None:
    """The record of a refused pod as it is now; None where it is gone or going. Raises APIError."""
    try:
        content = client.get(PODS, pod.name, pod.namespace)
    except NotFound:
        return None
    found = read_watched_pod(content)
    if found.uid != pod.uid or found.deleting:
        return None
    return recorded(found, record_name(pod.name, pod.uid), manifest.stripped(content, previous), renames=renames)


def any_node_admits(record: Relaunch) -> bool:
    """Whether the manifest fits an object."""
    return len(json.dumps(record.manifest)) <= MAX_MANIFEST_BYTES


def record_that_made(client: Client, pod: WatchedPod) -> Relaunch | None:
    """The record of which ``pod`` is the replacement; None for a pod that is none, or whose record is gone.

    Raises APIError.
    """
    for name in manifest.replaced_names(pod.name, pod.attempt) if pod.replaces else ():
        try:
            return read_relaunch(client.get(RELAUNCHES, record_name(name, pod.replaces), pod.namespace))
        except NotFound:
            continue
    return None
