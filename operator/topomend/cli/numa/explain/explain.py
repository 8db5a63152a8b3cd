"""``kubectl numa explain``: why a node's kubelet refuses a pod, and which nodes would admit it.

Owns the flags, which pods are asked about, and the output. Leaves the answers to ``answer`` and ``several``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.input.workload import template_pod
from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod, pod_file_option, pod_of_file, read_requested
from topomend.cli.numa.cluster.arguments.workload_argument import Chosen, Members, Target, choose
from topomend.cli.numa.cluster.cluster import Cluster, cluster_options
from topomend.cli.numa.cluster.completion import complete_nodes, complete_pods_and_workloads
from topomend.cli.numa.cluster.devices.device_claims import Devices
from topomend.cli.numa.cluster.picture import Picture, Source
from topomend.cli.numa.explain.answer import Answer
from topomend.cli.numa.explain.ask import answer_to
from topomend.cli.numa.explain.question import Facts, Question
from topomend.cli.numa.explain.resize import check_is_resize
from topomend.cli.numa.explain.several import Overview, overview, seen
from topomend.cli.numa.explain.waiting_pod.surroundings import Surroundings
from topomend.cli.output.console import echo, echo_answer, echo_data
from topomend.cli.output.failures import YES, BadInput
from topomend.cli.output.formats import (
    DOCUMENTS,
    NAME,
    TABLE,
    WIDE,
    check_watch,
    document_text,
    output_option,
    watch_option,
)
from topomend.kube.resources import PODS, RELAUNCHES
from topomend.model.relaunch_record import Relaunch
from topomend.picture.form import PICTURES
from topomend.wire.document import MalformedObject
from topomend.wire.relaunch_record import read_relaunch

_EXAMPLES = """\b
Examples:
  kubectl numa explain pod/train-9                    # why was it refused, and which nodes admit it?
  kubectl numa explain deploy/web                     # its pods: those that are refused or wait first
  kubectl numa explain -l app=web -A                  # the pods with this label in all namespaces
  kubectl numa explain -f pod.yaml --node gpu-01      # would gpu-01 admit it?
  kubectl numa explain pod/train-9 -f larger.yaml     # how would its kubelet answer a resize in place?
  kubectl numa explain pod/train-9 --watch            # until you interrupt it
  kubectl numa explain pod/train-9 -o html > why.html
  kubectl numa explain -f pod.yaml -o name            # the nodes that would admit it
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[KIND/NAME]...", shell_complete=complete_pods_and_workloads)
@click.option("-A", "--all-namespaces", is_flag=True, help="The pods of every namespace.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Only pods with these labels, such as app=train.")
@pod_file_option
@click.option(
    "--node",
    metavar="NODE",
    default="",
    shell_complete=complete_nodes,
    help="The node to ask. Default: the node that the pod is bound to.",
)
@output_option(pictures=True)
@watch_option
@cluster_options
@click.pass_context
def explain(  # noqa: PLR0913  one for each flag
    context: click.Context,
    /,
    *,
    cluster: Cluster,
    names: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    filename: str,
    node: str,
    output: str,
    watch: bool,
) -> None:
    """Explain in numbers why a node refuses a pod, and name the nodes that would admit it now.

    Name a pod (pod/train-9, or train-9 alone), or whatever created it: deploy/web, sts/db, job/x, cronjob/x, rs/x,
    ds/x, or KIND.GROUP/NAME of another kind whose pods have it above them as controller. Of several pods, those that
    are refused or wait come first, and pods with the same answer are told once.

    If you name a running pod and -f, the command says how the pod's kubelet would answer a resize in place to the
    resources in FILE.

    Exits with 0 if the node admits the pod, with 1 if it refuses the pod, if the scheduler would not use it, or if it
    does not align the pod as its annotation topomend.io/alignment asks, and with 3 if that is unknown. A pod that is
    bound to no node is judged by all nodes: 0 if any admits it. A pod that has ended and was not refused gets 0,
    whatever a pod like it would meet now. Of several pods the worst answer counts: 1, then 3.
    """
    check_watch(output, watch=watch)
    chosen = choose(cluster, names, everywhere=all_namespaces, selector=selector)
    if chosen is None and not filename:
        raise BadInput("name a pod, as in kubectl numa explain pod/train-9, or deploy/NAME, -l LABELS, -A, or -f FILE")
    if chosen and filename and not chosen.single:
        raise BadInput(f"-f asks about a resize of one pod: name that pod, not {chosen.shown(cluster.namespace)}")
    desired = pod_of_file(filename, cluster) if filename else None
    if chosen and desired:
        check_is_resize(chosen.single, desired, filename)
    answers: Iterable[_Answered]
    if chosen is None or chosen.single:
        name = chosen.single if chosen else ""
        answers = _of_one(cluster, cluster.pictures(_sources(cluster, pod=name), watch=watch), name, desired, node)
    else:
        answers = _of_several(cluster, chosen, node, watch=watch)
    printed: Sequence[str] = ()
    code = YES
    for answer, snapshot in answers:
        lines, code = _printed(answer, snapshot, output), answer.code
        if lines and lines != printed:
            _echo(lines, output, apart=bool(printed))
        printed = lines
    if cluster.unread:
        echo(cluster.unread, err=True)
    if code:
        context.exit(code)


_Answered = tuple[Answer | Overview, Snapshot]
"""An answer, and the cluster as it was asked."""


def _echo(lines: Sequence[str], output: str, *, apart: bool) -> None:
    """Print an answer, ``apart`` from the one before."""
    if output not in (TABLE, WIDE):
        echo_data("\n".join(lines))
        return
    echo_answer([*([""] if apart else []), *lines])


def _of_one(
    cluster: Cluster, pictures: Iterable[Picture], name: str, desired: RequestedPod | None, node: str
) -> Iterator[_Answered]:
    """The answer about the pod of this name, about that of a file, or about a resize of the one to the other."""
    for picture in pictures:
        running = next((read_requested(content, f"pod {name}") for content in picture.get(PODS, ())), None)
        if name and running is None:
            echo(f"pod {name} is gone", err=True)
            return
        snapshot = cluster.with_claims(cluster.snapshot_of(picture))
        facts = Facts(cluster, snapshot, picture[RELAUNCHES], Surroundings(cluster), Devices(cluster, snapshot))
        yield answer_to(facts, Question(running, desired, node)), snapshot


def _of_several(cluster: Cluster, chosen: Chosen, node: str, *, watch: bool) -> Iterator[_Answered]:
    """The answer about all pods of a workload, of a selector or of all namespaces."""
    members = Members(cluster, chosen)

    def reader(content: dict[str, Any]) -> Iterable[Any]:
        return [seen(content)] if content in members else []

    namespace = "" if chosen.everywhere else cluster.namespace
    pods = Source(PODS, reader, namespace, labels=chosen.selector)
    for picture in cluster.pictures([*_sources(cluster, namespace), pods], watch=watch):
        snapshot = cluster.with_claims(cluster.snapshot_of(picture))
        yield _overview(cluster, chosen, picture, snapshot, node), snapshot


def _overview(cluster: Cluster, chosen: Chosen, picture: Picture, snapshot: Snapshot, node: str) -> Overview:
    facts = Facts(cluster, snapshot, picture[RELAUNCHES], Surroundings(cluster), Devices(cluster, snapshot))
    asked = overview(facts, picture[PODS], chosen.shown(cluster.namespace), node)
    notes = tuple(note for target in chosen.targets for note in _notes(target))
    template = _template(chosen) if cluster.owners_read and not picture[PODS] else None
    of_template = answer_to(facts, Question(None, template, node)) if template else None
    found = replace(asked, notes=notes, of_template=of_template, everywhere=chosen.everywhere)
    return replace(found, owners_known=cluster.owners_read or bool(picture[PODS]))


def _notes(target: Target) -> Iterator[str]:
    """That the controller cannot create pods, as its object says (ReplicaSet, Deployment)."""
    for condition in (target.content.get("status") or {}).get("conditions") or ():
        if (condition.get("type"), condition.get("status")) == ("ReplicaFailure", "True"):
            yield f"{target.shown} cannot create pods ({condition.get('reason', '')}): {condition.get('message', '')}"


def _template(chosen: Chosen) -> RequestedPod | None:
    """The pod that the one named workload would create; None for several, and for a kind without a pod template."""
    if len(chosen.targets) != 1 or not (content := chosen.targets[0].content):
        return None
    try:
        return read_requested(template_pod(dict(content)), chosen.targets[0].shown)
    except (MalformedObject, BadInput):
        return None


def _printed(answer: Answer | Overview, snapshot: Snapshot, output: str) -> list[str]:
    """The lines to print in this format."""
    if output in PICTURES:
        # The drawings are loaded where one is asked for.
        from topomend.cli.numa.explain.pictured import drawn  # noqa: PLC0415

        return [drawn(answer, snapshot, output)]
    if output == NAME:
        return [f"node/{name}" for name in answer.admitting]
    return [document_text(answer.record(), output)] if output in DOCUMENTS else list(answer.lines(output))


def _sources(cluster: Cluster, namespace: str | None = None, pod: str = "") -> list[Source]:
    """Where nodes, states, relaunches and the ``pod`` are read; of the selected namespace unless another is given."""
    where = cluster.namespace if namespace is None else namespace
    relaunches = cluster.if_readable(Source(RELAUNCHES, _readable_relaunches, where))
    of_pod = Source(PODS, lambda content: [content], where, f"metadata.name={pod}")
    return [*cluster.readable_states, relaunches, *([of_pod] if pod else [])]


def _readable_relaunches(content: dict[str, Any]) -> Iterable[Relaunch]:
    try:
        return [read_relaunch(content)]
    except MalformedObject as error:
        echo(f"relaunch {content['metadata']['name']} is skipped: {error}", err=True)
        return []
