"""Explain a pod that its kubelet refused and that replay admits now: the changes since, as far as they are known."""

from collections.abc import Iterator

from topomend.cache.snapshot import Publication, is_newer
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.cluster.cluster import Cluster
from topomend.cli.numa.explain.pod_state import State, state_of
from topomend.cli.output.failures import NOT_KNOWN, YES, BadInput
from topomend.decide.eligibility import REASONS
from topomend.explain.explanation import amounts, numa_nodes_text
from topomend.kube.errors import APIError
from topomend.kube.resources import EVENTS
from topomend.model.pods.scheduling import REFUSAL_PREFIX, WatchedPod
from topomend.model.verdict import Verdict
from topomend.wire.document import MalformedObject
from topomend.wire.pods.scheduling import read_watched_pod

EXPLAINED = "TopologyRefusalExplained"


def refusal_by(asked: RequestedPod, node: str) -> WatchedPod | None:
    """The pod if the kubelet of ``node`` refused it; None otherwise. Raises BadInput if that pod is malformed."""
    content = asked.content
    is_on_node = content["spec"].get("nodeName") == node
    if not is_on_node or not content.get("metadata", {}).get("uid") or state_of(content) is not State.REFUSED:
        return None
    try:
        return read_watched_pod(content)
    except MalformedObject as error:
        raise BadInput(f"pod {asked.pod.name}: {error}") from error


def after_refusal(
    cluster: Cluster, publication: Publication, refusal: WatchedPod, verdict: Verdict
) -> tuple[list[str], int]:
    """The lines about a pod that was refused and that replay admits now, and the exit code."""
    refused = f"{refusal.node} refused {refusal.name} ({refusal.reason})"
    words = refusal.message.removeprefix(REFUSAL_PREFIX)
    if refusal.reason not in REASONS:
        why = "this has nothing to do with NUMA topology, so replay cannot tell whether the node would refuse it again"
        return [f"{refused}: {words}", why], NOT_KNOWN
    if not is_newer(publication.version, refusal.version):
        why = (
            f"the published state of {refusal.node} is older than the refusal, and would admit the pod: ask again in a "
            f"moment; if nothing changes, please report it with the output of kubectl numa export {refusal.node}"
        )
        return [f"{refused}: {words}", why], NOT_KNOWN
    where = numa_nodes_text(verdict)
    first = f"{refused}, and would admit it now{f' on {where}' if where else ''}: its allocations have changed since"
    return [first, f"  then: {explained_then(cluster, refusal) or words}", *_now(verdict)], YES


def explained_then(cluster: Cluster, refusal: WatchedPod) -> str:
    """The operator's explanation at the time; empty if there is none, or if the user may not read events."""
    fields = f"regarding.uid={refusal.uid},reason={EXPLAINED}"
    try:
        events = cluster.client.list(EVENTS, namespace=refusal.namespace, fields=fields).items
    except APIError:
        return ""
    return str(events[0].get("note", "")) if events else ""


def _now(verdict: Verdict) -> Iterator[str]:
    for line in amounts(verdict):
        yield f"  now:  {line}"
