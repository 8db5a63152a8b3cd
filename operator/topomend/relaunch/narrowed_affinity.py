"""Tell the operator's node affinity on a pod from its user's.

The operator narrows a pod by a node affinity when it ungates it (``manifest.launch``) and annotates it as narrowed.
That affinity names the nodes that were right at that time. It must not exclude other nodes later. Leaves adding and
removing the affinity to ``manifest``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from topomend.model.narrowing import ANYWHERE, Narrowing
from topomend.model.nodes.node import HOSTNAME_LABEL
from topomend.model.pods.scheduling import Placement, WatchedPod
from topomend.relaunch.manifest import widened
from topomend.wire.document import Document
from topomend.wire.group import NARROWED, RELEASED_ANNOTATION
from topomend.wire.pods.scheduling import read_placement


def is_narrowed(pod: Mapping[str, Any]) -> bool:
    """Whether the operator narrowed this Pod object."""
    annotations = pod.get("metadata", {}).get("annotations") or {}
    return bool(annotations.get(RELEASED_ANNOTATION) == NARROWED)


def as_asked(placement: Placement, node_affinity: Mapping[str, Any]) -> Placement:
    """The placement of a narrowed pod as its user asked for it.

    ``node_affinity`` is the pod's ``spec.affinity.nodeAffinity``. Raises MalformedObject.
    """
    requested = read_placement(Document({"affinity": {"nodeAffinity": widened(node_affinity)}}))
    return replace(placement, terms=requested.terms)


def as_requested(pod: WatchedPod) -> WatchedPod:
    """``pod`` with the placement that its user asked for, before the operator narrowed it. Raises MalformedObject."""
    return replace(pod, placement=as_asked(pod.placement, pod.node_affinity)) if pod.narrowed else pod


def narrowing_of(node_affinity: Mapping[str, Any]) -> Narrowing:
    """What a pod of this ``spec.affinity.nodeAffinity`` was narrowed to; to nothing where it was not."""
    if widened(node_affinity) == node_affinity:
        return ANYWHERE
    terms = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    last_requirement = terms[0]["matchExpressions"][-1]
    hosts = tuple(last_requirement["values"])
    return Narrowing(excluded=hosts) if last_requirement["operator"] == "NotIn" else Narrowing(hosts)


def preferred_hosts(node_affinity: Mapping[str, Any]) -> tuple[str, ...]:
    """Which hosts a narrowed pod of this ``spec.affinity.nodeAffinity`` prefers; none where that was not added."""
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    preferences, own = list(node_affinity.get(field) or ()), widened(node_affinity).get(field) or ()
    if len(preferences) == len(own):
        return ()
    named = preferences[-1]["preference"].get("matchExpressions") or ()
    return tuple(host for each in named if each["key"] == HOSTNAME_LABEL for host in each.get("values") or ())
