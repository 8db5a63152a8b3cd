"""What the scheduler says of nodes' totals: whether the pods that are bound to a node leave enough for one more.

Owns the sums and their wording. Leaves the rule to ``filters``, and reading the pods to its callers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from topomend.decide.diagnosis.filters import first_exceeded, too_little_left
from topomend.decide.diagnosis.node_status import INSUFFICIENT, NodeStatus, lacks_total
from topomend.explain.explanation import is_bytes
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import ONE_POD, Pod, requests_of, sum_of
from topomend.model.quantity import MilliQuantity, exact_thousandths, format_bytes, value
from topomend.model.verdict import Shortage, Verdict
from topomend.replay.admission import admit
from topomend.replay.qos import CPU

Requests = Mapping[str, MilliQuantity]


def sums_by_node(pods: Iterable[tuple[str, Requests]]) -> dict[str, Requests]:
    """What the pods of each node request together, by the node's name: ``pods`` are each pod's node and requests."""
    sums: dict[str, Requests] = {}
    for node, requests in pods:
        sums[node] = sum_of(sums.get(node, {}), {**requests, **ONE_POD})
    return sums


def status_by_totals(node: Node, requests: Requests, used: Requests) -> NodeStatus | None:
    """The answer of a node of which too little is left in total; None where enough is."""
    resource = too_little_left(node, requests, used)
    return lacks_total(node.name, resource, shortage_text(node, resource, requests, used)) if resource else None


def too_small(nodes: Mapping[str, Node], rejected: Iterable[NodeStatus], requests: Requests) -> dict[str, NodeStatus]:
    """The answers in numbers of those nodes that would be too small in total for the pod if they had no other."""
    named = ((status.node, nodes.get(status.node)) for status in rejected if status.reason == INSUFFICIENT)
    return {name: answer for name, node in named if node and (answer := _by_its_size(node, requests))}


def _by_its_size(node: Node, requests: Requests) -> NodeStatus | None:
    resource = first_exceeded(node, requests, ONE_POD)
    if not resource:
        return None
    has, asked = _texts(resource, node.allocatable.get(resource, 0), requests.get(resource, ONE_POD.get(resource, 0)))
    return lacks_total(node.name, resource, f"{node.name}: has {has} {resource} for pods in all, {asked} are requested")


def shortage_text(node: Node, resource: str, requests: Requests, used: Requests) -> str:
    """``node-3: by totals only 3990m of 4000m cpu are left``: what is left of what the pod requests."""
    left = max(0, node.allocatable.get(resource, 0) - used.get(resource, 0))
    asked = requests.get(resource, ONE_POD.get(resource, 0))
    left_text, asked_text = _texts(resource, left, asked)
    return f"{node.name}: by totals only {left_text} of {asked_text} {resource} are left"


def ask_with_totals(node: Node, state: NodeState, used: Requests, asked: NodeState, pod: Pod) -> Verdict:
    """The answer of the node's managers to a pod, and in its present ``state`` of its totals too.

    In another state other pods have ended or settings have changed, and what they leave in total is not known.
    """
    verdict, _ = admit(asked, pod)
    requests = requests_of(pod)
    if not verdict.admitted or asked is not state or not (resource := too_little_left(node, requests, used)):
        return verdict
    amounts = requests.get(resource, 0), used.get(resource, 0), node.allocatable.get(resource, 0)
    requested, taken, capacity = (amount if resource == CPU else value(amount) for amount in amounts)
    return replace(verdict, admitted=False, shortages=(Shortage(resource, requested, taken, capacity),))


def _texts(resource: str, left: MilliQuantity, asked: MilliQuantity) -> tuple[str, str]:
    """Both amounts in one unit."""
    if is_bytes(resource):
        one, other = format_bytes(left // 1000), format_bytes(asked // 1000)
        return (one, other) if one != other else (str(left // 1000), str(asked // 1000))
    if resource == CPU and (left % 1000 or asked % 1000):
        return f"{left}m", f"{asked}m"
    return exact_thousandths(left), exact_thousandths(asked)
