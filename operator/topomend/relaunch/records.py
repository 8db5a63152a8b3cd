"""Build the record of a refused pod, or of one that no scheduler binds.

Leaves the record's layout to ``wire.relaunch_record``, its manifest to ``manifest`` and writing it to ``driver``.
"""

import json
from typing import Any

from topomend.kube.client import Client
from topomend.kube.errors import NotFound
from topomend.kube.resources import PODS
from topomend.model.pods.scheduling import WatchedPod, is_refusal
from topomend.model.relaunch_record import SCHEDULER, UNSCHEDULABLE, Relaunch
from topomend.relaunch import manifest
from topomend.relaunch.narrowed_affinity import narrowing_of
from topomend.wire.pods.scheduling import read_watched_pod
from topomend.wire.relaunch_record import record_name

MAX_MANIFEST_BYTES = 1_000_000
"""A pod with a larger manifest is not relaunched: etcd takes 1.5 MiB an object, and a record holds more than this."""


def recorded(pod: WatchedPod, name: str, stripped: dict[str, Any], *, renames: bool) -> Relaunch:
    """The record of a pod as it is first written, and the manifest, which is written later.

    A pod that was not refused is unbound: its replacement keeps its name (``protocol``).

    ``stripped`` is the pod's manifest (``manifest.stripped``). ``renames`` is whether the replacement gets a name of
    its own.
    """
    refused = is_refusal(pod)
    return Relaunch(
        namespace=pod.namespace,
        name=name,
        pod_name=pod.name,
        pod_uid=pod.uid,
        refused_by=pod.node if refused else SCHEDULER,
        reason=pod.reason if refused else UNSCHEDULABLE,
        message=pod.message if refused else _why_unbound(pod),
        attempt=pod.attempt + 1,
        manifest=stripped,
        manifest_hash=manifest.digest(stripped),
        own_name=manifest.own_name(pod.name, pod.attempt) if renames and refused else "",
    )


def _why_unbound(pod: WatchedPod) -> str:
    narrowing = narrowing_of(pod.node_affinity)
    nodes = f"any but {', '.join(narrowing.excluded)}" if narrowing.excluded else ", ".join(narrowing.hosts)
    return f"no scheduler binds it to the nodes for which it was ungated: {nodes}"


def draft(client: Client, pod: WatchedPod, *, renames: bool) -> Relaunch | None:
    """The record of a refused pod, from the pod as the API server has it; None where it is gone or being deleted.

    Raises APIError, MalformedObject.
    """
    try:
        content = client.get(PODS, pod.name, pod.namespace)
    except NotFound:
        return None
    current = read_watched_pod(content)
    if current.uid != pod.uid or current.deleting:
        return None
    return recorded(current, record_name(pod.name, pod.uid), manifest.stripped(content), renames=renames)


def fits_an_object(record: Relaunch) -> bool:
    """Whether the record's manifest has at most MAX_MANIFEST_BYTES as JSON, so that one object can hold it.

    The API server writes each of ``<>&`` as six letters.
    """
    text = json.dumps(record.manifest)
    return len(text) + 5 * sum(text.count(letter) for letter in "<>&") <= MAX_MANIFEST_BYTES
