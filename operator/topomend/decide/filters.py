"""The scheduler's filters: a node that it would reject is not a candidate, whatever the node's kubelet would say.

Owns the filters that depend on node and pod alone. Leaves those that depend on other pods (affinity, spreading, ports)
and on claims to the scheduler.
Source: k8s.io/component-helpers/scheduling/corev1 (nodeaffinity, helpers.go), pkg/scheduler/framework/plugins.
"""

from collections.abc import Iterable, Mapping

from topomend.model.cluster import HOSTNAME_LABEL, Node, NodeSelectorTerm, Placement, Requirement, Taint, Toleration
from topomend.model.pod import Pod, requests_of, sum_of
from topomend.model.quantity import MilliQuantity

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_ITSELF: Mapping[str, MilliQuantity] = {"pods": 1000}
"""What every pod uses beside its requests."""

NO_HOSTNAME_LABEL = "NoHostnameLabel"
"""The answer for a node that a pod's node affinity could not name."""

_REJECTING_EFFECTS = ("NoSchedule", "NoExecute")


def filter_node(node: Node, placement: Placement, asked: Mapping[str, MilliQuantity]) -> str:
    """The name of the filter that rejects ``node`` for a pod that requests ``asked``; empty where none does."""
    if not node.ready:
        return "NotReady"
    if node.unschedulable and not _tolerated(_UNSCHEDULABLE, placement.tolerations):
        return "Unschedulable"
    for taint in node.taints:
        if taint.effect in _REJECTING_EFFECTS and not _tolerated(taint, placement.tolerations):
            return "Taint"
    rejected = filter_node_affinity(node, placement)
    if rejected:
        return rejected
    return "InsufficientResources" if _first_exceeded(node, asked, _ITSELF) else ""


def filter_node_affinity(node: Node, placement: Placement) -> str:
    """The name of the filter that rejects the node for its labels; empty where none does."""
    if any(node.labels.get(key) != value for key, value in placement.node_selector.items()):
        return "NodeSelector"
    if placement.terms is not None and not any(_term_matches(term, node) for term in placement.terms):
        return "NodeAffinity"
    return "" if HOSTNAME_LABEL in node.labels else NO_HOSTNAME_LABEL


def insufficient_resource(node: Node, pod: Pod, others: Iterable[Mapping[str, MilliQuantity]]) -> str:
    """The first resource of which the node has too little in total for ``pod``; empty: none.

    ``others`` are the requests of the node's other pods (``requests_of``).
    """
    used = _ITSELF
    for other in others:
        used = sum_of(used, {"pods": 1000, **other})
    return _first_exceeded(node, requests_of(pod), used)


def judged_by_claim(node: Node, asked: Iterable[str]) -> bool:
    """Whether the scheduler turns one of the resources ``asked`` into a claim on this node."""
    return any(_is_by_claim(node, resource) for resource in asked)


def _is_by_claim(node: Node, resource: str) -> bool:
    """Whether a claim provides the resource and not the node (plugins/noderesources:shouldDelegateResourceToDRA)."""
    return resource in node.by_claim and node.allocatable.get(resource, 0) <= 0


def _first_exceeded(node: Node, asked: Mapping[str, MilliQuantity], used: Mapping[str, MilliQuantity]) -> str:
    for resource in ("pods", *asked):
        if _is_by_claim(node, resource):
            continue
        if used.get(resource, 0) + asked.get(resource, 0) > node.allocatable.get(resource, 0):
            return resource
    return ""


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


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
    return all(_matches(requirement, node.labels) for requirement in term.expressions) and all(
        _matches(requirement, name) for requirement in term.fields
    )


def _matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    label = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return label in requirement.values
        case "NotIn":
            return label not in requirement.values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case "Gt" | "Lt":
            return _compares(requirement, label)
    return False


def _compares(requirement: Requirement, label: str | None) -> bool:
    try:
        number, bound = int(label or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if requirement.operator == "Gt" else number < bound
