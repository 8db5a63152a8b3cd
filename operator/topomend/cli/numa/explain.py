"""``kubectl numa explain``: why a node's kubelet refuses a pod, and which nodes would admit it."""

from collections.abc import Iterator

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.failures import NO, NOT_KNOWN, YES, BadInput, CannotAsk
from topomend.cli.numa.cluster import Cluster, cluster_options
from topomend.cli.numa.pod_argument import AskedPod, pod_of_cluster, pod_of_file
from topomend.cli.numa.refusal_table import refusal_table
from topomend.cli.numa.refused import after_refusal, refusal_by
from topomend.cli.numa.resize import explain_resized, is_pending
from topomend.decide.explanation import explain as explanation
from topomend.decide.feasibility import UNKNOWN, Diagnosis, diagnose
from topomend.kube.client import RELAUNCHES
from topomend.relaunch import narrowing
from topomend.replay.admission import admit
from topomend.wire.relaunch import read_relaunch


@click.command()
@click.argument("pod", default="", metavar="[pod/NAME]")
@click.option(
    "-f", "--filename", metavar="FILE", default="", help="A Pod, or a workload with a pod template; - is stdin."
)
@click.option("--node", metavar="NODE", default="", help="The node to ask. Default: the one that the pod is bound to.")
@cluster_options
@click.pass_context
def explain(context: click.Context, /, *, cluster: Cluster, pod: str, filename: str, node: str) -> None:
    """Say why a node refuses a pod, in numbers, and where it would be admitted now.

    Of a running pod together with -f, say what its kubelet would answer to a resize in place to what FILE asks for.

    Exits with 0 if the node admits the pod (any node, if none is meant), with 1 if it refuses, with 3 if that is not
    known.
    """
    if not pod and not filename:
        raise BadInput("name one pod, as in: kubectl numa explain pod/train-9, or a file with -f")
    running = pod_of_cluster(cluster, pod) if pod else None
    asked = running if running and not filename else pod_of_file(filename)
    snapshot = cluster.snapshot()
    bound = (running or asked).content.get("spec", {}).get("nodeName", "")
    chosen = node or bound
    answers = diagnose(snapshot, asked.pod, asked.placement)
    if running and chosen == bound and (filename or is_pending(running)):
        lines, code = _resized(cluster, snapshot, running, asked)
    elif chosen:
        lines, code = _on_node(cluster, snapshot, asked, chosen)
    else:
        lines, code = [*_narrowed(asked)], _anywhere(answers)
    for line in [*lines, *_elsewhere(answers, chosen), *_done(cluster, asked)]:
        click.echo(line)
    if code:
        context.exit(code)


def _on_node(cluster: Cluster, snapshot: Snapshot, asked: AskedPod, node: str) -> tuple[list[str], int]:
    """The node's answer and its exit code. A pod whose allocation the node publishes counts as admitted."""
    if node not in snapshot.nodes and node not in snapshot.publications:
        raise BadInput(f"there is no node {node}; kubectl get nodes lists them")
    pod = asked.pod
    refusal = refusal_by(asked, node)
    if snapshot.why_unknown(node):
        past = f"{node} refused {pod.name} ({refusal.reason}); " if refusal else ""
        return [f"{past}whether {node} admits {pod.name} now is not known: {_unknown(snapshot, node)}"], NOT_KNOWN
    publication = snapshot.publications[node]
    if refusal is None and (pod.namespace, pod.name) in publication.shown:
        return [f"{node} has admitted {pod.name}; see: kubectl numa show {node}"], YES
    verdict, _ = admit(publication.state, pod)
    if refusal and verdict.admitted:
        return after_refusal(cluster, publication, refusal, verdict)
    policy = publication.state.kubelet.topology_manager_policy
    numbers = (f"  {line}" for line in refusal_table(verdict, policy))
    return [explanation(verdict, node, policy), *numbers], YES if verdict.admitted else NO


def _unknown(snapshot: Snapshot, node: str) -> str:
    return f"{snapshot.why_unknown(node)}; see: kubectl numa check"


def _anywhere(answers: Diagnosis) -> int:
    """The exit code if the user names no node."""
    if answers.candidates:
        return YES
    return NOT_KNOWN if any(rejected.reason == UNKNOWN for rejected in answers.rejected) else NO


def _narrowed(asked: AskedPod) -> Iterator[str]:
    """A line about a pod that the operator has ungated for some nodes and that is still not bound."""
    affinity = asked.content.get("spec", {}).get("affinity", {}).get("nodeAffinity") or {}
    hosts = narrowing.named_hosts(affinity) if narrowing.is_narrowed(asked.content) else ()
    if hosts:
        yield (
            f"topomend let {asked.pod.name} go to {', '.join(hosts)} alone, and no scheduler has bound it since: "
            "nodes cannot be added to a pod again; delete it and create it anew to have others taken"
        )


def _resized(cluster: Cluster, snapshot: Snapshot, running: AskedPod, desired: AskedPod) -> tuple[list[str], int]:
    """The kubelet's answer to a resize of a running pod, and its exit code. Raises BadInput, CannotAsk."""
    node = running.content["spec"].get("nodeName", "")
    if running.content.get("status", {}).get("phase") != "Running":
        raise BadInput(f"pod {running.pod.name} does not run: only a running pod is resized in place")
    if snapshot.why_unknown(node):
        raise CannotAsk(f"what {node} answers to a resize is not known: {_unknown(snapshot, node)}")
    lines, resized = explain_resized(cluster, snapshot, snapshot.publications[node].state, running, desired)
    return lines, YES if resized else NO


def _elsewhere(answers: Diagnosis, node: str) -> Iterator[str]:
    others = [candidate for candidate in answers.candidates if candidate.node != node]
    rejected = [rejected for rejected in answers.rejected if rejected.node != node]
    if others:
        yield f"elsewhere: {', '.join(candidate.place for candidate in others[:5])} would admit it now"
    elif not rejected:
        yield "elsewhere: there is no other node"
    elif any(one.reason == UNKNOWN for one in rejected):
        yield "elsewhere: no other node is known to admit it now"
    else:
        yield "elsewhere: no other node would admit it now"
    for one in rejected:
        yield f"  {one.explanation}"


def _done(cluster: Cluster, asked: AskedPod) -> Iterator[str]:
    """A line for each relaunch of a pod of this name."""
    if not asked.content.get("metadata", {}).get("uid"):
        return
    for content in cluster.own(RELAUNCHES, cluster.namespace):
        relaunch = read_relaunch(content)
        if relaunch.pod_name == asked.pod.name:
            yield (
                f"done: refused by {relaunch.refused_by} ({relaunch.reason}), relaunch {relaunch.name} is "
                f"{relaunch.step.value}{f', new pod {relaunch.new_name}' if relaunch.new_name else ''}"
            )
