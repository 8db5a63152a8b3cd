"""The scheduler's filters: a node that it would reject is not a candidate, whatever the node's kubelet would say.

Owns the filters that depend on node and pod alone. Leaves those that depend on other pods (affinity, spreading, ports)
and on claims to the scheduler, and how affinity and tolerations match to ``replay.lifecycle``: the kubelet has the same
rules. Source: pkg/scheduler/framework/plugins.
"""

from collections.abc import Iterable, Mapping

from topomend.model.nodes.node import HOSTNAME_LABEL, Node, Taint
from topomend.model.pods.pod import ONE_POD, Pod, requests_of, sum_of
from topomend.model.pods.scheduling import Placement
from topomend.model.quantity import MilliQuantity
from topomend.replay.lifecycle.node_affinity import matches_selector, matches_terms
from topomend.replay.lifecycle.tolerations import NO_EXECUTE, NO_SCHEDULE, tolerates

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", NO_SCHEDULE)

NO_HOSTNAME_LABEL = "NoHostnameLabel"
"""The answer for a node that a pod's node affinity could not name."""

_REJECTING_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


def filter_node(node: Node, placement: Placement, asked: Mapping[str, MilliQuantity]) -> str:
    """The name of the filter that rejects ``node`` for a pod that requests ``asked``; empty where none does."""
    if not node.ready:
        return "NotReady"
    if node.unschedulable and not tolerates(placement.tolerations, _UNSCHEDULABLE):
        return "Unschedulable"
    for taint in node.taints:
        if taint.effect in _REJECTING_EFFECTS and not tolerates(placement.tolerations, taint):
            return "Taint"
    rejected = filter_node_affinity(node, placement)
    if rejected:
        return rejected
    return "InsufficientResources" if first_exceeded(node, asked, ONE_POD) else ""


def filter_node_affinity(node: Node, placement: Placement) -> str:
    """The name of the filter that rejects the node for its labels; empty where none does.

    A volume is asked about labels alone, as by component-helpers/storage/volume/helpers.go:CheckNodeAffinity.
    """
    if not matches_selector(placement, node.labels):
        return "NodeSelector"
    if not matches_terms(placement, node.name, node.labels):
        return "NodeAffinity"
    volumes = placement.volumes
    if volumes and not all(matches_terms(Placement(terms=terms), "", node.labels) for terms in volumes):
        return "VolumeNodeAffinity"
    return "" if HOSTNAME_LABEL in node.labels else NO_HOSTNAME_LABEL


def insufficient_resource(node: Node, pod: Pod, others: Iterable[Mapping[str, MilliQuantity]]) -> str:
    """The first resource of which the node has too little in total for ``pod``; empty: none.

    ``others`` are the requests of the node's other pods (``requests_of``).
    """
    used: Mapping[str, MilliQuantity] = {}
    for other in others:
        used = sum_of(used, {**ONE_POD, **other})
    return too_little_left(node, requests_of(pod), used)


def too_little_left(node: Node, asked: Mapping[str, MilliQuantity], used: Mapping[str, MilliQuantity]) -> str:
    """The first resource of which less than ``asked`` is left in total for one more pod; empty: none.

    ``used`` is what the pods on the node take.
    """
    return first_exceeded(node, asked, sum_of(used, ONE_POD))


def lacking_in_total(node: Node, asked: Mapping[str, MilliQuantity]) -> str:
    """The first resource of which the pods on the node leave less than ``asked``; empty: none, or it is not known."""
    return "" if node.used is None else too_little_left(node, asked, node.used)


def is_rejected(node: Node, placement: Placement, asked: Mapping[str, MilliQuantity]) -> bool:
    """Whether a filter rejects ``node`` for a pod that requests ``asked``, or its pods leave too little as is known."""
    return bool(filter_node(node, placement, asked) or lacking_in_total(node, asked))


def judged_by_claim(node: Node, asked: Iterable[str]) -> bool:
    """Whether the scheduler turns one of the resources ``asked`` into a claim on this node."""
    return any(_is_by_claim(node, resource) for resource in asked)


def _is_by_claim(node: Node, resource: str) -> bool:
    """Whether a claim provides the resource and not the node (plugins/noderesources:shouldDelegateResourceToDRA)."""
    return resource in node.by_claim and node.allocatable.get(resource, 0) <= 0


def first_exceeded(node: Node, asked: Mapping[str, MilliQuantity], used: Mapping[str, MilliQuantity]) -> str:
    """The first resource of which ``asked`` is more than ``used`` leaves of the node's; empty: none."""
    for resource in ("pods", *asked):
        if _is_by_claim(node, resource):
            continue
        if used.get(resource, 0) + asked.get(resource, 0) > node.allocatable.get(resource, 0):
            return resource
    return ""
