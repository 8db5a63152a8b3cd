"""``topomend what-if``: the same question about a cluster that a file describes, such as a bug report.

Owns which documents the file has. Leaves the question to ``comparison``.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.cache.topology_reader import TopologyReader
from topomend.cli.input.discovered_node import PODS_UNKNOWN, lacks
from topomend.cli.numa.cluster.arguments.pod_argument import objects_of_file, pods_of_file
from topomend.cli.numa.cluster.picture import Picture
from topomend.cli.numa.cluster.pods.arrivals import Arrivals, arrivals_of_file, in_order, read_arrival, with_own_names
from topomend.cli.numa.cluster.pods.stays import stays_in
from topomend.cli.numa.cluster.states import readable_nodes, snapshot_of
from topomend.cli.numa.what_if.comparison import Question, question_options
from topomend.cli.output.console import waiting
from topomend.cli.output.failures import BadInput
from topomend.kube.resources import NODE_TOPOLOGIES, NODES
from topomend.wire.document import Document, MalformedObject
from topomend.wire.group import NODE_TOPOLOGY

_HOW = "kubectl get nodes,ntopo,pods -A -o json prints all that is needed"

_MOST_BYTES = 1 << 32
"""All pods, nodes and publications of the largest clusters; 100,000 pods are some 1 GiB."""

_EXAMPLES = """\b
Examples:
  kubectl get nodes,ntopo,pods -A -o json > cluster.json
  topomend what-if --cluster cluster.json --policy restricted,best-effort
  topomend what-if --cluster cluster.json --add-nodes gpu=3
  kubectl numa export > report.yaml                         # it has no pods that run
  topomend what-if --cluster report.yaml -f pods.yaml --policy restricted
"""


@click.command("what-if", epilog=_EXAMPLES)
@click.option(
    "--cluster",
    "source",
    metavar="FILE",
    required=True,
    type=click.Path(),
    help="Nodes, NodeTopologies and pods (JSON or YAML; - is stdin), or what kubectl numa export prints.",
)
@question_options
def what_if_offline(*, source: str, question: Question) -> None:
    """Say what the kubelets of a recorded cluster would answer under another policy, or with more nodes.

    It is the answer of kubectl numa what-if, whose help says what the columns mean and what it does not know. The
    cluster's agents count as alive, however old the file is.
    """
    if source == question.filename == "-":
        raise BadInput("--cluster - and -f -: stdin can be read only once; put one of them into a file")
    with waiting(lambda: f"reading --cluster {source}"):
        snapshot, arrivals = read_cluster(source, question.since)
    if question.filename:
        arrivals = arrivals_of_file(pods_of_file(question.filename, None), question.filename)
    elif not arrivals.pods and not arrivals.left_out:
        raise BadInput(f"--cluster {source}: no Pod that runs or waits; name pods with -f, or see that {_HOW}")
    question.answer(snapshot, arrivals)


def read_cluster(source: str, since: timedelta | None = None) -> tuple[Snapshot, Arrivals]:
    """The nodes and their published states, and the pods; of the last so long those that have ended, too.

    Raises BadInput.
    """
    where, by_kind = f"--cluster {source}", dict[str, list[dict[str, Any]]]()
    for content in objects_of_file(source, "--cluster", _MOST_BYTES):
        by_kind.setdefault(_kind(content, where), []).append(content)
    for kind in ("Node", NODE_TOPOLOGY):
        if kind not in by_kind:
            raise BadInput(f"{where}: no {kind}; {_HOW}")
    picture: Picture = {
        NODES: [node for content in by_kind["Node"] for node in readable_nodes(content)],
        NODE_TOPOLOGIES: list(_published(by_kind[NODE_TOPOLOGY])),
    }
    pods = by_kind.get("Pod", ())
    if since is not None:
        return snapshot_of(picture), stays_in(pods, since)
    arrivals = in_order([read for content in pods for read in read_arrival(content)])
    return snapshot_of(picture), with_own_names(arrivals, where)


def _kind(content: dict[str, Any], where: str) -> str:
    """The kind of an object, which has a name if it is one that is read. Raises BadInput."""
    document = Document(content)
    try:
        kind = document["kind"].text("")
        if kind in ("Node", NODE_TOPOLOGY, "Pod"):
            document["metadata"]["name"].text()
    except MalformedObject as error:
        raise BadInput(f"{where}: {error}") from error
    return kind


def _published(contents: Iterable[dict[str, Any]]) -> Iterable[changes.Published | changes.Unreadable]:
    """What the objects say of their nodes. That an agent is silent since the file was written says nothing.

    One that lacks the pods alone is known: the question is about empty nodes.
    """
    topologies, date = TopologyReader(), datetime.now(UTC)
    for content in contents:
        try:
            published = topologies.published(content, date)
        except MalformedObject as error:
            published = changes.Unreadable(content["metadata"]["name"], f"its NodeTopology is malformed: {error}")
        if isinstance(published, changes.Published):
            problem = "" if lacks(content) == {PODS_UNKNOWN} else published.problem
            published = published._replace(heartbeat=None, problem=problem)
        yield published
