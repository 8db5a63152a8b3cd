"""Why a kubelet refuses a pod, or that it admits it, in one line: what happened, why, what to do.

Owns the wording of a whole verdict. Leaves tables for a terminal to ``cli``, what would be admitted instead to
``nearest`` and ``remedy``, and why a pod is not pinned at all to ``pinning``.
"""

from collections.abc import Sequence

from topomend.decide.cause import Cause, Kind
from topomend.decide.manager_error import cause_of_failure
from topomend.decide.refused_merge import blocking, cause_of_merge, refused_merge
from topomend.decide.trace_text import amount_text, free_text, numa_text
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.model.verdict import ResourceTrace, Verdict
from topomend.replay import errors
from topomend.replay.resize import DEFERRED, Resized


def explain(verdict: Verdict, node: NodeState, pod: Pod) -> str:
    """Why the node refuses the pod, or that it admits it and on which NUMA nodes, in one line.

    ``verdict`` is the answer of ``admit(node, pod)``.
    """
    remarks = _unmodelled(verdict.unmodelled)
    if verdict.admitted:
        return f"{node.name} admits {verdict.name}{_placement(verdict)}{remarks}"
    cause = cause_of(verdict, node, pod)
    subject = f"container {cause.container}" if cause.container else verdict.name
    if refused_merge(verdict) is not None and not cause.container:
        subject = f"{verdict.name} as a whole (scope pod)"
    return f"{node.name} refuses {subject}: {cause.text} ({node.kubelet.topology_manager_policy}){remarks}"


def cause_of(verdict: Verdict, node: NodeState, pod: Pod) -> Cause:
    """The cause of a refusal: ``verdict`` is the answer of ``admit(node, pod)``, and not an admission."""
    merge = refused_merge(verdict)
    if merge is not None:
        return cause_of_merge(merge, node, pod)
    if verdict.failure is not None:
        return cause_of_failure(verdict.failure, pod)
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


def blocking_resources(verdict: Verdict) -> str:
    """For a summary: the resources that the pod was refused for, joined by commas, or the kubelet's reason."""
    merge = refused_merge(verdict)
    if verdict.failure:
        return verdict.failure.provider
    if merge is None:
        return verdict.reason
    return ",".join(blocking(merge)) or verdict.reason


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


def _cause_of_kubelet(verdict: Verdict, node: NodeState) -> Cause:
    """The answer of a kubelet that would not start, would hang or would crash."""
    resources = (verdict.reason,)
    if verdict.reason == errors.KUBELET_WOULD_HANG:
        remedy = (
            "request fewer kinds of aligned resources, or use single-numa-node, which compares single NUMA nodes only"
        )
        return Cause(Kind.KUBELET_WOULD_HANG, "", resources, verdict.message, remedy)
    if verdict.reason == errors.KUBELET_WOULD_CRASH:
        return Cause(Kind.KUBELET_WOULD_CRASH, "", resources, verdict.message)
    if "NUMA Nodes" in verdict.message:
        remedy = f"set option max-allowable-numa-nodes to {len(node.machine.numa_nodes)} or more"
        return Cause(Kind.TOO_MANY_NUMA_NODES, "", resources, f"its kubelet would not start: {verdict.message}", remedy)
    sentence = f"its kubelet would not start: {verdict.message}"
    return Cause(Kind.KUBELET_WOULD_NOT_START, "", resources, sentence, "correct its configuration")
