"""Whether a pod is infeasible: no node would admit it even when empty. Then which node comes closest.

A pod that only waits for others to end is feasible; ``feasibility`` answers for it. So is one that waits for devices:
after a reboot a kubelet has none of a resource until its plugin is back, and devices that are unhealthy may recover.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from topomend.alignment.requested import admission_of, why_not_aligned
from topomend.cache.snapshot import Snapshot
from topomend.decide.diagnosis.filters import filter_node_affinity, insufficient_resource
from topomend.explain.explanation import cause_of, explain
from topomend.explain.refused_merge import refused_merge
from topomend.explain.remedy import remedy_of
from topomend.model.nodes.node import Node
from topomend.model.nodes.node_state import NodeState, emptied
from topomend.model.pods.pod import Pod, is_extended, requests_of
from topomend.model.pods.scheduling import Placement
from topomend.model.quantity import MAX_INT64, MilliQuantity, format_bytes, value
from topomend.model.verdict import Preference, ResourceTrace, Verdict
from topomend.replay.admission import admit
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.fast_path.admission import FastAdmission
from topomend.replay.qos import is_memory

_UNMEASURED = float("inf")

_NOBODY_KNOWS: MilliQuantity = MAX_INT64
"""The amount of devices of a resource whose plugin has not said it yet."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A node that refuses the pod even when empty. ``distance`` is the share of its requests that is missing there."""

    distance: float
    node: str
    text: str


def misses(snapshot: Snapshot, pod: Pod, placement: Placement, effort: Effort = UNLIMITED) -> Sequence[Miss]:
    """The nodes that the pod selects, if none of them could ever admit it; none where one could, or might.

    A node might whose state no agent publishes. Conditions that pass do not count: a node that is not ready or
    cordoned, a taint, devices that are unhealthy or whose plugin is not back. Raises Overspent.
    """
    return [_miss(snapshot, node, pod, effort) for node in _refusing_when_empty(snapshot, pod, placement, effort)]


def words_of(
    found: Sequence[Miss], snapshot: Snapshot, pod: Pod, effort: Effort = UNLIMITED, refused_by: str = ""
) -> str:
    """Why no node can ever admit the pod, by its ``found`` misses: the node that comes closest, and what it lacks.

    ``refused_by`` is a node whose refusal the reader knows: the same cause is not told again. Raises Overspent.
    """
    closest = min(found, key=lambda miss: (miss.distance, miss.node != refused_by, miss.node))
    words = _remedy_words(snapshot, closest, pod, effort)
    is_known = closest.node == refused_by and _refuses_alike_when_empty(snapshot, closest.node, pod, effort)
    text = f"{closest.node}, which refused it" if is_known else closest.text
    return f"no node admits {pod.name} even when empty; closest: {text}{f'; {words}' if words else ''}"


def why_infeasible(snapshot: Snapshot, pod: Pod, placement: Placement, effort: Effort = UNLIMITED) -> str:
    """The words of its ``misses``; empty where it has none. Raises Overspent."""
    found = misses(snapshot, pod, placement, effort)
    return words_of(found, snapshot, pod, effort) if found else ""


def is_infeasible(snapshot: Snapshot, pod: Pod, placement: Placement, effort: Effort) -> bool:
    """Whether ``why_infeasible`` has an answer, which takes several times as long."""
    return bool(_refusing_when_empty(snapshot, pod, placement, effort))


def _refusing_when_empty(snapshot: Snapshot, pod: Pod, placement: Placement, effort: Effort) -> Sequence[Node]:
    """The nodes that the pod selects, if none of them could ever admit it; else none."""
    fit, nodes = admission_of(pod, effort), list[Node]()
    for node in snapshot.nodes.values():
        if filter_node_affinity(node, placement):
            continue
        if _could_admit(snapshot, node, pod, fit):
            return ()
        nodes.append(node)
    return nodes


def another_would_admit(snapshot: Snapshot, pod: Pod, placement: Placement, effort: Effort) -> bool:
    """Whether a node whose state is published would admit ``pod`` when empty: so would a new node of its kind.

    Raises Overspent.
    """
    fit = admission_of(pod, effort)
    return any(
        _could_admit(snapshot, node, pod, fit)
        for node in snapshot.nodes.values()
        if not snapshot.why_unknown(node.name) and not filter_node_affinity(node, placement)
    )


def _refuses_alike_when_empty(snapshot: Snapshot, name: str, pod: Pod, effort: Effort) -> bool:
    """Whether the node refuses the pod as it is for what it would refuse it for even when empty."""
    publication = snapshot.publications.get(name)
    if publication is None or insufficient_resource(snapshot.nodes[name], pod, ()):
        return False
    state, causes = publication.state_with_assumed(effort), []
    for asked in (state, emptied(publication.state)):
        verdict, _ = admit(asked, pod, effort)
        if verdict.admitted:
            return False
        causes.append(cause_of(verdict, asked, pod, effort))
    as_it_is, when_empty = causes
    return (as_it_is.kind, as_it_is.container, as_it_is.resources) == (
        when_empty.kind,
        when_empty.container,
        when_empty.resources,
    )


def _remedy_words(snapshot: Snapshot, closest: Miss, pod: Pod, effort: Effort) -> str:
    """What the closest node would admit when empty; nothing where its total is too small."""
    publication = snapshot.publications.get(closest.node)
    if publication is None or insufficient_resource(snapshot.nodes[closest.node], pod, ()):
        return ""
    empty = emptied(publication.state)
    verdict, _ = admit(empty, pod, effort)
    return "" if verdict.admitted else remedy_of(empty, pod, verdict, effort=effort).words


def devices_not_back(snapshot: Snapshot, pod: Pod, placement: Placement) -> str:
    """Which devices that ``pod`` asks for a node lacks now and had, or may have, in one line; empty where none does."""
    asked = {name: amount for name, amount in requests_of(pod).items() if is_extended(name)}
    lacking = [
        (node.name, name)
        for node in snapshot.nodes.values()
        for name, amount in asked.items()
        if node.allocatable.get(name, 0) < amount <= _with_all_devices(node).get(name, 0)
        and not filter_node_affinity(node, placement)
    ]
    if not lacking:
        return ""
    node, resource = lacking[0]
    more = len({name for name, _ in lacking}) - 1
    others = f" and {more} more node{'s' if more > 1 else ''}" if more else ""
    return f"{resource} of {node}{others} is unhealthy, or its device plugin is not back yet"


def _could_admit(snapshot: Snapshot, node: Node, pod: Pod, fit: FastAdmission) -> bool:
    if insufficient_resource(replace(node, allocatable=_with_all_devices(node)), pod, ()):
        return False
    publication = snapshot.publications.get(node.name)
    return publication is None or bool(publication.problem) or fit.admits(_healed(emptied(publication.state)))


def _with_all_devices(node: Node) -> Mapping[str, MilliQuantity]:
    """What the node has once all its devices are healthy. A capacity of 0 is that of a plugin that is gone.

    Source: pkg/kubelet/nodestatus/setters.go:MachineInfo, which keeps a resource that no plugin offers any more.
    """
    devices = {
        name: amount or _NOBODY_KNOWS
        for name, amount in node.capacity.items()
        if is_extended(name) and amount >= node.allocatable.get(name, 0)
    }
    return {**node.allocatable, **devices}


def _healed(state: NodeState) -> NodeState:
    if all(device.healthy for device in state.devices):
        return state
    return replace(state, devices=tuple(replace(device, healthy=True) for device in state.devices))


def _miss(snapshot: Snapshot, node: Node, pod: Pod, effort: Effort) -> Miss:
    """How far the node is from admitting the pod."""
    resource = insufficient_resource(node, pod, ())
    if resource:
        return _insufficient_total(node, pod, resource)
    empty = emptied(snapshot.publications[node.name].state)
    verdict, after = admit(empty, pod, effort)
    if verdict.admitted:
        return Miss(0.0, node.name, f"{node.name} would not place it on one NUMA node: {why_not_aligned(after, pod)}")
    return Miss(_distance(verdict), node.name, explain(verdict, empty, pod, effort))


def _insufficient_total(node: Node, pod: Pod, resource: str) -> Miss:
    asked, total = requests_of(pod).get(resource, 1000), node.allocatable.get(resource, 0)
    has = f"{node.name} has {_amount(resource, total)} {resource} in total"
    text = f"{has}, {pod.name} requests {_amount(resource, asked)}"
    return Miss((asked - total) / asked, node.name, text)


def _amount(resource: str, number: MilliQuantity) -> str:
    return format_bytes(value(number)) if is_memory(resource) else f"{number / 1000:g}"


def _distance(verdict: Verdict) -> float:
    merge = refused_merge(verdict)
    if merge is None:
        return _UNMEASURED
    return sum(_missing_share(trace) for trace in merge.resources)


def _missing_share(trace: ResourceTrace) -> float:
    most = max((amount for _, amount in trace.free), default=0)
    if trace.preference == Preference.NONE or trace.requested <= most:
        return 0.0
    return (trace.requested - most) / trace.requested
