"""What the operator's narrowing of a pod is, and where the pod may go by its user's own words.

A pod that is let go is narrowed by a node affinity (``manifest.launch``) and annotated as such. That affinity says
where the pod was to go then; it is no reason why another node will not do.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from topomend.model.cluster import HOSTNAME_LABEL, Placement
from topomend.relaunch.manifest import widened
from topomend.wire.cluster import read_placement
from topomend.wire.document import Document
from topomend.wire.group import RELEASED_ANNOTATION


def is_narrowed(pod: Mapping[str, Any]) -> bool:
    """Whether the operator narrowed this Pod object."""
    annotations = pod.get("metadata", {}).get("annotations") or {}
    return bool(annotations.get(RELEASED_ANNOTATION) == "true")


def as_asked(placement: Placement, node_affinity: Mapping[str, Any]) -> Placement:
    """The placement of a narrowed pod as its user asked for it; ``node_affinity`` is written as in the Pod object."""
    asked = read_placement(Document({"affinity": {"nodeAffinity": widened(node_affinity)}}))
    return replace(placement, terms=asked.terms)


def named_hosts(node_affinity: Mapping[str, Any]) -> tuple[str, ...]:
    """The hostnames that a pod of this node affinity was narrowed to; none where it was not."""
    if widened(node_affinity) == node_affinity:
        return ()
    terms = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    named = terms[0]["matchExpressions"][-1]
    return tuple(named["values"]) if named["key"] == HOSTNAME_LABEL else ()
