"""A resize in place of a running pod, asked of what its node publishes and of the node's totals."""

from collections import Counter
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cli.failures import BadInput, CannotAsk
from topomend.cli.numa.cluster import Cluster
from topomend.cli.numa.pod_argument import AskedPod, read_asked
from topomend.cli.numa.refusal_table import refusal_table
from topomend.decide.explanation import explain_resize
from topomend.kube.client import PODS
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod, requests_of
from topomend.replay.resize import Totals, is_shown, resize


def is_pending(pod: AskedPod) -> bool:
    """Whether the pod waits for a resize that its kubelet put off or will not do."""
    conditions = pod.content.get("status", {}).get("conditions") or []
    return any((each.get("type"), each.get("status")) == ("PodResizePending", "True") for each in conditions)


def explain_resized(
    cluster: Cluster, snapshot: Snapshot, state: NodeState, running: AskedPod, desired: AskedPod
) -> tuple[list[str], bool]:
    """What the kubelet of ``state`` answers when ``running`` is to ask what ``desired`` does, and whether that is yes.

    Raises BadInput where the two are not one pod, CannotAsk where that depends on what the state does not show yet,
    and APIError.
    """
    allocated = _allocated(running)
    changed = _as_running(allocated, desired)
    answer, _ = resize(state, allocated, changed, _totals(cluster, snapshot, state.name, running))
    if answer.verdict and not is_shown(state, allocated):
        raise CannotAsk(
            f"the published state of {state.name} does not show yet what pod {allocated.name} holds there; ask again, "
            f"and if this stays: kubectl numa check"
        )
    policy = state.kubelet.topology_manager_policy
    numbers = refusal_table(answer.verdict, policy) if answer.verdict else ()
    return [explain_resize(answer, changed.name, state.name), *(f"  {line}" for line in numbers)], not answer.reason


def _as_running(allocated: Pod, desired: AskedPod) -> Pod:
    """The desired pod under the running one's name; its containers must be the same ones."""
    names, wanted = ([(each.name, each.kind) for each in pod.containers] for pod in (allocated, desired.pod))
    if names != wanted:
        told = ", ".join(name for name, _ in names)
        raise BadInput(f"a resize leaves a pod its containers: {allocated.name} has {told}, in this order")
    return Pod(
        allocated.namespace,
        allocated.name,
        allocated.uid,
        desired.pod.containers,
        allocated.qos_class,
        desired.pod.resources,
    )


def _allocated(running: AskedPod) -> Pod:
    """The pod with the resources that its status says its containers have; the spec is what it asks for."""
    status = running.content.get("status", {})
    shown = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    had = {each["name"]: each["resources"] for each in shown if each.get("resources")}
    spec: dict[str, Any] = dict(running.content["spec"])
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [{**each, "resources": had.get(each["name"], each.get("resources"))} for each in spec[kind]]
    return read_asked({**running.content, "spec": spec}, f"pod {running.pod.name}").pod


def _totals(cluster: Cluster, snapshot: Snapshot, node: str, running: AskedPod) -> Totals:
    """The node's allocatable, and what its other pods request."""
    there = snapshot.nodes.get(node)
    fields = f"spec.nodeName={node},status.phase!=Failed,status.phase!=Succeeded"
    used = Counter[str]()
    for content in cluster.client.list(PODS, fields=fields).items:
        other = read_asked(content, f"pod {content['metadata']['name']}").pod
        if other.uid != running.pod.uid:
            used.update(requests_of(other))
    return Totals(there.allocatable if there else {}, used)
