"""``kubectl numa explain``: why a node's kubelet refuses a pod, and which nodes would admit it."""

from collections.abc import Iterator

import click

from topomend.cli.failures import NO, BadInput
from topomend.cli.numa.asked import AskedPod, pod_of_cluster, pod_of_file
from topomend.cli.numa.cluster import Cluster, cluster_options
from topomend.cli.numa.resized import explain_resized, is_pending
from topomend.decide.candidates import survey
from topomend.decide.explanation import explain as explanation
from topomend.decide.explanation import table
from topomend.kube.client import RELAUNCHES
from topomend.replay.admission import admit
from topomend.watch.view import ClusterView, Publication
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

    Exits with 0 if the node admits the pod, with 1 if it refuses.
    """
    if not pod and not filename:
        raise BadInput("name one pod, as in: kubectl numa explain pod/train-9, or a file with -f")
    running = pod_of_cluster(cluster, pod) if pod else None
    asked = running if running and not filename else pod_of_file(filename)
    view = cluster.view()
    bound = (running or asked).content.get("spec", {}).get("nodeName", "")
    chosen = node or bound
    if running and chosen == bound and (filename or is_pending(running)):
        lines, admitted = _resized(cluster, view, running, asked)
    else:
        lines, admitted = _on_node(view, asked, chosen) if chosen else ([], False)
    for line in [*lines, *_elsewhere(view, asked, chosen), *_done(cluster, asked)]:
        click.echo(line)
    if not admitted:
        context.exit(NO)


def _on_node(view: ClusterView, asked: AskedPod, node: str) -> tuple[list[str], bool]:
    """What the node says, and whether that is yes. A pod that holds its place there is admitted as it is."""
    publication = _publication(view, node)
    policy = publication.state.kubelet.topology_manager_policy
    if any((each.namespace, each.name) == (asked.pod.namespace, asked.pod.name) for each in publication.state.pods):
        return [f"{node} has admitted {asked.pod.name}; see: kubectl numa show {node}"], True
    verdict, _ = admit(publication.state, asked.pod)
    numbers = (f"  {line}" for line in table(verdict, policy))
    return [explanation(verdict, node, policy), *numbers, *_doubts(publication)], verdict.admitted


def _doubts(publication: Publication) -> Iterator[str]:
    if publication.problem:
        yield f"take this with care: {publication.problem}"


def _publication(view: ClusterView, node: str) -> Publication:
    publication = view.publications.get(node)
    if publication is None:
        raise BadInput(f"{node}: {view.unreadable.get(node, 'no agent publishes its state')}")
    return publication


def _resized(cluster: Cluster, view: ClusterView, running: AskedPod, desired: AskedPod) -> tuple[list[str], bool]:
    """What the kubelet of a running pod answers to a resize, and whether that is yes."""
    node = running.content["spec"].get("nodeName", "")
    if running.content.get("status", {}).get("phase") != "Running":
        raise BadInput(f"pod {running.pod.name} does not run: only a running pod is resized in place")
    publication = _publication(view, node)
    lines, resized = explain_resized(cluster, view, publication.state, running, desired)
    return [*lines, *_doubts(publication)], resized


def _elsewhere(view: ClusterView, asked: AskedPod, node: str) -> Iterator[str]:
    answers = survey(view, asked.pod, asked.placement)
    others = [each for each in answers.candidates if each.node != node]
    if others:
        yield f"elsewhere: {', '.join(each.place for each in others[:5])} would admit it now"
    else:
        yield "elsewhere: no other node would admit it now"
    for turned in answers.turned:
        if turned.node != node:
            yield f"  {turned.explanation}"


def _done(cluster: Cluster, asked: AskedPod) -> Iterator[str]:
    """What was done about earlier refusals of a pod of this name."""
    if not asked.content.get("metadata", {}).get("uid"):
        return
    for content in cluster.client.list(RELAUNCHES, namespace=cluster.namespace).items:
        relaunch = read_relaunch(content)
        if relaunch.pod_name == asked.pod.name:
            yield (
                f"done: refused by {relaunch.refused_by} ({relaunch.reason}), relaunch {relaunch.name} is "
                f"{relaunch.step.value}{f', new pod {relaunch.new_name}' if relaunch.new_name else ''}"
            )
