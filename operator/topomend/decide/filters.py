"""The scheduler's rules that say whether a node may be named to it for a pod.

A node that the scheduler's own filters would reject is no candidate, however well the pod fits its NUMA nodes.
Source: k8s.io/component-helpers/scheduling/corev1 (nodeaffinity, helpers.go), pkg/scheduler/framework/plugins.
"""

from collections.abc import Iterable, Mapping

from topomend.model.cluster import Node, NodeSelectorTerm, Placement, Requirement, Taint, Toleration
from topomend.model.pod import Pod, requests_of
from topomend.model.quantity import MilliQuantity

HOSTNAME_LABEL = "kubernetes.io/hostname"

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_ITSELF: Mapping[str, MilliQuantity] = {"pods": 1000}
"""What every pod takes by being there."""

_EFFECTS_THAT_KEEP_OUT = ("NoSchedule", "NoExecute")


def filter_pod(node: Node, placement: Placement, pod: Pod) -> str:
    """The name of the scheduler's filter that keeps ``pod`` off ``node``, empty where none does."""
    return filter_node(node, placement, requests_of(pod))


def filter_node(node: Node, placement: Placement, asked: Mapping[str, MilliQuantity]) -> str:
    """The same of any pod that asks so much of a node's totals."""
    if not node.ready:
        return "NotReady"
    if node.unschedulable and not _tolerated(_UNSCHEDULABLE, placement.tolerations):
        return "Unschedulable"
    for taint in node.taints:
        if taint.effect in _EFFECTS_THAT_KEEP_OUT and not _tolerated(taint, placement.tolerations):
            return "Taint"
    kept_off = filter_node_affinity(node, placement)
    if kept_off:
        return kept_off
    return "InsufficientResources" if _lacking(node, asked, _ITSELF) else ""


def filter_node_affinity(node: Node, placement: Placement) -> str:
    """What of the node's labels keeps a pod of this placement off it, empty where nothing does."""
    if any(node.labels.get(key) != value for key, value in placement.node_selector.items()):
        return "NodeSelector"
    if placement.terms is not None and not any(_term_matches(term, node) for term in placement.terms):
        return "NodeAffinity"
    return "" if HOSTNAME_LABEL in node.labels else "NoHostnameLabel"


def lacking_total(node: Node, pod: Pod, others: Iterable[Pod]) -> str:
    """The first resource of the node's totals that is too little for ``pod`` beside ``others``; empty where none is."""
    used = _ITSELF
    for other in others:
        used = _sum(used, {"pods": 1000, **requests_of(other)})
    return _lacking(node, requests_of(pod), used)


def _lacking(node: Node, asked: Mapping[str, MilliQuantity], used: Mapping[str, MilliQuantity]) -> str:
    for resource in ("pods", *asked):
        if used.get(resource, 0) + asked.get(resource, 0) > node.allocatable.get(resource, 0):
            return resource
    return ""


def _sum(left: Mapping[str, MilliQuantity], right: Mapping[str, MilliQuantity]) -> dict[str, MilliQuantity]:
    return {resource: left.get(resource, 0) + right.get(resource, 0) for resource in [*left, *right]}


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(each, taint) for each in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.key != "" and toleration.value == taint.value


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    name = {"metadata.name": node.name}
    return all(_holds(each, node.labels) for each in term.expressions) and all(
        _holds(each, name) for each in term.fields
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    found = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return found in requirement.values
        case "NotIn":
            return found not in requirement.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return _compares(requirement, found)
    return False


def _compares(requirement: Requirement, found: str | None) -> bool:
    try:
        label, bound = int(found or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return label > bound if requirement.operator == "Gt" else label < bound
