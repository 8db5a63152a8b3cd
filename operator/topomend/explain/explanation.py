"""Why a kubelet refuses a pod, or that it admits it, in one line: what happened, why, what to do.

Owns the wording of a whole verdict. Leaves tables for a terminal to ``cli``, what would be admitted instead to
``nearest`` and ``remedy``, and why a pod is not pinned at all to ``alignment``.
"""

from collections.abc import Sequence
from dataclasses import replace

from topomend.explain.cause import Cause, Kind
from topomend.explain.manager_error import cause_of_failure
from topomend.explain.refused_merge import blocking, cause_of_merge, refused_merge
from topomend.explain.setting_remedy import allowing_numa_nodes
from topomend.explain.trace_text import amount_text, free_text, numa_text
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod
from topomend.model.quantity import exact_thousandths, format_bytes
from topomend.model.verdict import ResourceTrace, Shortage, Verdict
from topomend.replay import errors, qos
from topomend.replay.admission import start_refusal
from topomend.replay.effort import UNLIMITED, Effort
from topomend.replay.gates import MAX_NUMA_NODES, TOPOLOGY_BETA_OPTIONS
from topomend.replay.lifecycle.predicate import EPHEMERAL_STORAGE
from topomend.replay.resize import DEFERRED, Resized


def explain(verdict: Verdict, node: NodeState, pod: Pod, effort: Effort = UNLIMITED) -> str:
    """Why the node refuses the pod, or that it admits it and on which NUMA nodes, in one line.

    ``verdict`` is the answer of ``admit(node, pod)``. Raises Overspent.
    """
    remarks = _unmodelled(verdict.unmodelled)
    if verdict.admitted:
        return f"{node.name} admits {verdict.name}{_placement(verdict)}{remarks}"
    cause = cause_of(verdict, node, pod, effort)
    subject = f"container {cause.container}" if cause.container else verdict.name
    if refused_merge(verdict) is not None and not cause.container:
        subject = f"{verdict.name} as a whole (scope pod)"
    return f"{node.name} refuses {subject}: {cause.text} ({node.kubelet.topology_manager_policy}){remarks}"


def cause_of(verdict: Verdict, node: NodeState, pod: Pod, effort: Effort = UNLIMITED) -> Cause:
    """The cause of a refusal: ``verdict`` is the answer of ``admit(node, pod)``, and not an admission."""
    merge = refused_merge(verdict)
    if merge is not None:
        return cause_of_merge(verdict, merge, node, pod, effort)
    if verdict.failure is not None:
        return cause_of_failure(verdict.failure, verdict, node, pod, effort)
    if verdict.shortages:
        return _cause_of_totals(verdict)
    if verdict.message.startswith(errors.MESSAGE_PREFIX):
        sentence = verdict.message.removeprefix(errors.MESSAGE_PREFIX)
        return Cause(Kind.NODE_DOES_NOT_MATCH, "", (verdict.reason,), sentence)
    return _cause_of_kubelet(verdict, node)


def explain_resize(answer: Resized, pod: str, node: str) -> str:
    """Whether ``node`` resizes the pod in place, and in the kubelet's words why not."""
    remarks = _unmodelled(answer.unmodelled)
    if not answer.reason:
        return f"{node} resizes {pod} in place{remarks}"
    if answer.reason == DEFERRED:
        return f"{node} puts the resize of {pod} off ({DEFERRED}): {answer.message}{remarks}"
    return f"{node} does not resize {pod} ({answer.reason}): {answer.message}{remarks}"


def amounts(verdict: Verdict) -> tuple[str, ...]:
    """What was asked and free of each aligned resource, a line each container, or one for a whole pod."""
    return tuple(
        f"{merge.container or verdict.name}: {requests}"
        for merge in verdict.merges
        if (requests := "; ".join(_request_text(trace) for trace in merge.resources if trace.free))
    )


def refused_for(verdict: Verdict) -> tuple[str, ...]:
    """The resources that the pod was refused for, or the kubelet's reason."""
    merge = refused_merge(verdict)
    if verdict.failure:
        return (verdict.failure.provider,)
    return (tuple(blocking(merge)) if merge else ()) or (verdict.reason,)


def blocking_resources(verdict: Verdict) -> str:
    """For a summary: the resources that the pod was refused for, joined by commas, or the kubelet's reason."""
    return ",".join(refused_for(verdict))


def numa_nodes_text(verdict: Verdict) -> str:
    """The NUMA nodes that an admitted pod is aligned to: ``NUMA 0,1``; empty where it is not aligned."""
    mask = 0
    for container in verdict.containers:
        mask |= container.affinity or 0
    return numa_text(mask) if mask else ""


def _placement(verdict: Verdict) -> str:
    numa_nodes = numa_nodes_text(verdict)
    return f" on {numa_nodes}" if numa_nodes else ""


def _unmodelled(remarks: Sequence[str]) -> str:
    return f"; not modelled: {', '.join(remarks)}" if remarks else ""


def _request_text(trace: ResourceTrace) -> str:
    return f"{trace.resource} requests {amount_text(trace, trace.requested)}, free {free_text(trace)}"


def _cause_of_totals(verdict: Verdict) -> Cause:
    """Too little is left in total. The kubelet names the first of these resources."""
    parts = [
        f"{short.resource} requests {total_text(short, short.requested)}, "
        f"left {total_text(short, max(0, short.capacity - short.used))} of {total_text(short, short.capacity)}"
        for short in verdict.shortages
    ]
    resources = tuple(short.resource for short in verdict.shortages)
    return Cause(Kind.NOT_ENOUGH_IN_TOTAL, "", resources, f"too little is left in total: {'; '.join(parts)}")


def total_text(shortage: Shortage, amount: int) -> str:
    """An amount of a shortage's resource for people: ``7500m``, ``15.9Gi``, ``2``."""
    if shortage.resource == qos.CPU:
        return exact_thousandths(amount)
    return format_bytes(amount) if is_bytes(shortage.resource) else str(amount)


def is_bytes(resource: str) -> bool:
    """Whether amounts of the resource are bytes."""
    return qos.is_memory(resource) or resource == EPHEMERAL_STORAGE


def _cause_of_kubelet(verdict: Verdict, node: NodeState) -> Cause:
    """The answer of a kubelet that would not start, would hang or would crash."""
    resources = (verdict.reason,)
    if verdict.reason == errors.KUBELET_WOULD_HANG:
        never = "its kubelet would never answer: " if "for ever" in verdict.message else ""
        remedy = "request fewer kinds of aligned resources" if "permutations" in verdict.message else ""
        sentence = f"{never}{verdict.message}"
        return Cause(Kind.KUBELET_WOULD_HANG, "", resources, sentence, remedy)
    if verdict.reason == errors.KUBELET_WOULD_CRASH:
        return Cause(Kind.KUBELET_WOULD_CRASH, "", resources, f"its kubelet would crash: {verdict.message}")
    if "NUMA Nodes" in verdict.message:
        remedy = _more_numa_nodes(node)
        return Cause(Kind.TOO_MANY_NUMA_NODES, "", resources, f"its kubelet would not start: {verdict.message}", remedy)
    sentence = f"its kubelet would not start: {verdict.message}"
    return Cause(Kind.KUBELET_WOULD_NOT_START, "", resources, sentence, "correct its configuration")


def _more_numa_nodes(node: NodeState) -> str:
    """The option that allows so many NUMA nodes; what it takes where the kubelet's version or gates lack it."""
    count = len(node.machine.numa_nodes)
    refusal = start_refusal(replace(node, kubelet=allowing_numa_nodes(node.kubelet, count)))
    if refusal and MAX_NUMA_NODES in refusal:
        return f"option {MAX_NUMA_NODES} allows more, from 1.31 on and with feature gate {TOPOLOGY_BETA_OPTIONS}"
    return f"set option {MAX_NUMA_NODES} to {count} or more"
