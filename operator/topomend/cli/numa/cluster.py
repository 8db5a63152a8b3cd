"""The cluster that a verb reads: the flags that select it, its client, and a snapshot of its nodes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

import click

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.cache.topology_reader import published
from topomend.cli.failures import CannotAsk
from topomend.kube.client import NODE_TOPOLOGIES, NODES, Client, NoCluster, Resource, connect, current_namespace
from topomend.kube.errors import APIError, NotFound
from topomend.model.cluster import Node
from topomend.wire.cluster import read_node
from topomend.wire.document import MalformedObject

_Result = TypeVar("_Result")

INSTALL = "install topomend with: kubectl apply --server-side -k deploy"

NOTHING_PUBLISHED = (
    "no node publishes its topology: there is no NodeTopology object; see whether the agents run "
    "(kubectl get pods -n topomend-agent), and: kubectl numa check"
)


class Cluster:
    """One API server, the selected namespace, and the published state of the nodes."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def snapshot(self) -> Snapshot:
        """The nodes and the states that their agents publish, read now. Raises APIError, CannotAsk."""
        nodes = self.client.read(NODES, _readable_nodes)
        with _kind_served(NODE_TOPOLOGIES):
            publications = self.client.read(NODE_TOPOLOGIES, _published)
        snapshot = changes.apply(Snapshot(), changes.NodesListed(nodes.items, nodes.version))
        return changes.apply(snapshot, changes.PublicationsListed(publications.items, publications.version))

    def own(self, kind: Resource, namespace: str = "") -> tuple[dict[str, Any], ...]:
        """The objects of one of topomend's kinds; no namespace means all of them. Raises APIError, CannotAsk."""
        with _kind_served(kind):
            return self.client.list(kind, namespace=namespace).items


@contextmanager
def _kind_served(kind: Resource) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise CannotAsk(f"the API server serves no {kind.plural}.topomend.io: {INSTALL}") from error


def cluster_options(verb: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a verb kubectl's flags for the cluster, and pass a Cluster as its argument ``cluster``.

    An APIError becomes CannotAsk.
    """

    @click.option("--kubeconfig", metavar="FILE", help="The kubeconfig to use.")
    @click.option("--context", metavar="NAME", help="The kubeconfig's context to use.")
    @click.option("-n", "--namespace", metavar="NAME", default="", help="The namespace, where it matters.")
    @wraps(verb)
    def asked(*, kubeconfig: str | None, context: str | None, namespace: str, **arguments: Any) -> _Result:
        with _connected(kubeconfig, context) as client:
            cluster = Cluster(client, namespace or current_namespace(kubeconfig, context))
            return verb(cluster=cluster, **arguments)

    return asked


@contextmanager
def _connected(kubeconfig: str | None, context: str | None) -> Iterator[Client]:
    try:
        client = connect(kubeconfig, context)
        try:
            yield client
        finally:
            client.close()
    except (NoCluster, APIError) as error:
        raise CannotAsk(str(error)) from error


def _readable_nodes(content: dict[str, Any]) -> Iterable[Node]:
    try:
        return [read_node(content)]
    except MalformedObject as error:
        click.echo(f"Node {content['metadata']['name']} is left out: {error}", err=True)
        return []


def _published(content: dict[str, Any]) -> Iterable[changes.Published | changes.Unreadable]:
    try:
        return [published(content, datetime.now(UTC))]
    except MalformedObject as error:
        return [changes.Unreadable(content["metadata"]["name"], f"its NodeTopology is malformed: {error}")]
