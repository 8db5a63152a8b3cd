"""Build the record of a refused pod, and look up the record that created a replacement.

Leaves the record's layout to ``wire.relaunch``, its manifest to ``manifest`` and writing it to ``driver``.
"""

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
"""A pod with a larger manifest is not relaunched: etcd takes 1.5 MiB an object, and a record holds more than this."""


def recorded(pod: WatchedPod, name: str, stripped: dict[str, Any], *, renames: bool) -> Relaunch:
    """The record of a refused pod as it is first written.

    ``stripped`` is the pod's manifest (``manifest.stripped``). ``renames`` is whether the replacement gets a name of
    its own.
    """
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
    """The record of a refused pod, from the pod as the API server has it; None where it is gone or being deleted.

    ``previous`` is the record that created the pod, where it is a replacement. Raises APIError, MalformedObject.
    """
    try:
        content = client.get(PODS, pod.name, pod.namespace)
    except NotFound:
        return None
    current = read_watched_pod(content)
    if current.uid != pod.uid or current.deleting:
        return None
    return recorded(current, record_name(pod.name, pod.uid), manifest.stripped(content, previous), renames=renames)


def fits_an_object(record: Relaunch) -> bool:
    """Whether the record's manifest has at most MAX_MANIFEST_BYTES as JSON, so that one object can hold it."""
    return len(json.dumps(record.manifest)) <= MAX_MANIFEST_BYTES


def record_that_made(client: Client, pod: WatchedPod) -> Relaunch | None:
    """The record that created ``pod``; None where the pod is no replacement, or its record is gone.

    Raises APIError, MalformedObject.
    """
    for name in manifest.replaced_names(pod.name, pod.attempt) if pod.replaces else ():
        try:
            return read_relaunch(client.get(RELAUNCHES, record_name(name, pod.replaces), pod.namespace))
        except NotFound:
            continue
    return None
