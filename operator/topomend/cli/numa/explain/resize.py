"""Explain a resize in place of a running pod, from its node's published state and totals."""

from collections import Counter
from dataclasses import replace
from typing import Any

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod, read_requested
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.explain.pod_state import condition_of
from topomend.cli.numa.explain.refusal_table import refusal_table
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.explain.explanation import explain_resize
from topomend.kube.resources import PODS
from topomend.model.nodes.node_state import NodeState
from topomend.model.pods.pod import Pod, requests_of
from topomend.replay.resize import Totals, is_shown, resize


def is_pending(pod: RequestedPod) -> bool:
    """Whether the pod has a pending resize: its kubelet deferred it or finds it infeasible."""
    return bool(condition_of(pod.content, "PodResizePending", "True"))


def check_is_resize(name: str, desired: RequestedPod, filename: str) -> None:
    """Raise BadInput if the file has a Pod of another name than ``name``: it would be taken for a resize of that."""
    kind, _, other = desired.shown.partition(" ")
    if kind == "Pod" and other not in ("", name):
        raise BadInput(
            f"-f {filename} is Pod {other}, and -f beside pod/{name} asks about a resize of {name}: leave pod/{name} "
            "out to ask about the file's pod, or give both the same name"
        )


def explain_resized(
    cluster: Cluster, snapshot: Snapshot, state: NodeState, running: RequestedPod, desired: RequestedPod
) -> tuple[list[str], bool]:
    """The kubelet's answer to a resize of ``running`` to the requests of ``desired``, and whether it agrees.

    Raises BadInput if the two are not the same pod, CannotAsk if the answer depends on an allocation that ``state``
    does not show yet, and APIError.
    """
    allocated = _allocated(running)
    changed = _as_running(allocated, desired)
    answer, _ = resize(state, allocated, changed, _totals(cluster, snapshot, state.name, running))
    if answer.verdict and not is_shown(state, allocated):
        raise CannotAsk(
            f"the published state of {state.name} does not show the allocations of pod {allocated.name} yet; ask again "
            f"in a moment, then run kubectl numa check"
        )
    policy = state.kubelet.topology_manager_policy
    numbers = refusal_table(answer.verdict, policy) if answer.verdict else ()
    return [explain_resize(answer, changed.name, state.name), *(f"  {line}" for line in numbers)], not answer.reason


def _as_running(allocated: Pod, desired: RequestedPod) -> Pod:
    """The desired pod with the running one's identity. Raises BadInput if their containers differ."""
    names, wanted = (
        [(container.name, container.kind) for container in pod.containers] for pod in (allocated, desired.pod)
    )
    if names != wanted:
        in_order = ", ".join(name for name, _ in names)
        raise BadInput(f"a resize cannot change a pod's containers: {allocated.name} has {in_order}, in this order")
    return replace(allocated, containers=desired.pod.containers, resources=desired.pod.resources)


def _allocated(running: RequestedPod) -> Pod:
    """The pod with the resources in its status, which its containers have now; the spec has the requested ones."""
    status = running.content.get("status", {})
    container_statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    actual = {entry["name"]: entry["resources"] for entry in container_statuses if entry.get("resources")}
    spec: dict[str, Any] = dict(running.content["spec"])
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [
                {**container, "resources": actual.get(container["name"], container.get("resources"))}
                for container in spec[kind]
            ]
    return read_requested({**running.content, "spec": spec}, f"pod {running.pod.name}").pod


def _totals(cluster: Cluster, snapshot: Snapshot, node: str, running: RequestedPod) -> Totals:
    """The node's allocatable resources, and the requests of its other pods, whose own resizes may still wait.

    Source: pkg/kubelet/allocation/allocation_manager.go:canResizePod, which counts what is allocated.
    """
    published_node = snapshot.nodes.get(node)
    fields = f"spec.nodeName={node},status.phase!=Failed,status.phase!=Succeeded"
    requests = Counter[str]()
    for content in cluster.client.list(PODS, fields=fields).items:
        other = _allocated(read_requested(content, f"pod {content['metadata']['name']}"))
        if other.uid != running.pod.uid:
            requests.update(requests_of(other))
    return Totals(published_node.allocatable if published_node else {}, requests)
