"""The cluster that a verb reads: the flags that select it, its client, and a snapshot of its nodes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

import click

from topomend.cache import changes
from topomend.cache.snapshot import Snapshot
from topomend.cache.topology_reader import TopologyReader
from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.numa.cluster.completion import complete_contexts, complete_namespaces
from topomend.cli.numa.cluster.picture import Picture, Source, follow, take
from topomend.cli.output.console import echo
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.decide.totals import Requests, sums_by_node
from topomend.kube.client import (
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    UNENDED,
    Client,
    Resource,
    connect,
)
from topomend.kube.connection.kubeconfig import BadSelection, NotConfigured
from topomend.kube.device_classes import mapped_resources
from topomend.kube.errors import APIError, Forbidden, NotFound
from topomend.model.cluster import Node
from topomend.model.pod import requests_of
from topomend.wire.cluster import read_node
from topomend.wire.document import MalformedObject
from topomend.wire.group import API_VERSION, GROUP
from topomend.wire.pod import read_pod

_Result = TypeVar("_Result")

FEW_NODES = 8
"""For so many nodes their pods are listed node by node, for more all pods at once."""

TOTALS_NOT_CHECKED = (
    "totals were not checked, as you may not list the pods of all namespaces: other pods may leave too little"
)

INSTALL = "install topomend with: kubectl apply --server-side -k deploy"

NOTHING_PUBLISHED = (
    "no node publishes its topology: there is no NodeTopology object; see whether the agents run "
    "(kubectl get pods -n topomend-agent), then run kubectl numa check"
)


class Cluster:
    """One API server and the selected namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._topologies = TopologyReader()

    @property
    def states(self) -> tuple[Source, ...]:
        """Where the nodes and their published states are read."""
        return Source(NODES, _readable_nodes), Source(NODE_TOPOLOGIES, self.read_published)

    def read_published(self, content: dict[str, Any]) -> Iterable[changes.Published | changes.Unreadable]:
        """What a NodeTopology object says of its node."""
        try:
            return [self._topologies.published(content, datetime.now(UTC))]
        except MalformedObject as error:
            return [changes.Unreadable(content["metadata"]["name"], f"its NodeTopology is malformed: {error}")]

    def snapshot(self) -> Snapshot:
        """The nodes and the states that their agents publish, read now. Raises APIError, CannotAsk."""
        return self.with_claims(snapshot_of(next(self.pictures(self.states))))

    def with_claims(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot that knows which resources claims provide; as it is for users who may not read DeviceClasses."""
        try:
            return changes.apply(snapshot, changes.DeviceClassesListed(mapped_resources(self.client)))
        except APIError:
            return snapshot

    def requests_on(self, nodes: Collection[str], *, but: str = "") -> Mapping[str, Requests] | None:
        """What the pods on these nodes request together, by node; None for a user who may not list all pods.

        ``but`` is the uid of a pod that does not count. Raises other APIErrors.
        """
        try:
            return sums_by_node(self._pods_on(nodes, but))
        except Forbidden:
            return None

    def _pods_on(self, nodes: Collection[str], but: str) -> Iterator[tuple[str, Requests]]:
        """The node and the requests of each pod. For a few nodes the API server is asked about each of them."""

        def reader(content: dict[str, Any]) -> Iterable[tuple[str, Requests]]:
            node = content["spec"].get("nodeName", "")
            return [] if node not in nodes or content["metadata"]["uid"] == but else [(node, _requests(content))]

        few = len(nodes) <= FEW_NODES
        for which in [f"spec.nodeName={node}" for node in nodes] if few else ["spec.nodeName!="]:
            yield from self.client.read(PODS, reader, fields=f"{which},{UNENDED}").items

    def pictures(self, sources: Sequence[Source], *, watch: bool = False) -> Iterator[Picture]:
        """One picture of the sources' objects; with ``watch`` another after each change, until the user interrupts it.

        Raises APIError, CannotAsk.
        """
        try:
            with _kinds_served([source.resource for source in sources]):
                if watch:
                    yield from follow(self.client, sources)
                else:
                    yield take(self.client, sources)
        except KeyboardInterrupt:
            if not watch:
                raise

    def own(self, kind: Resource, namespace: str = "") -> tuple[dict[str, Any], ...]:
        """The objects of one of topomend's kinds; no namespace means all of them. Raises APIError, CannotAsk."""
        with _kinds_served([kind]):
            return self.client.list(kind, namespace=namespace).items

    def names(self, kind: Resource) -> list[str]:
        """The names of a kind's objects, of the selected namespace if they have one; none if they may not be read."""
        try:
            listed = self.client.list(kind, namespace=self.namespace if kind.namespaced else "")
        except APIError:
            return []
        return [item["metadata"]["name"] for item in listed.items]

    def check_namespace(self) -> None:
        """Raise BadInput if the selected namespace does not exist. Users who may not know that see no difference."""
        try:
            self.client.get(NAMESPACES, self.namespace)
        except NotFound as error:
            near = did_you_mean(self.namespace, self.names(NAMESPACES))
            raise BadInput(f"no namespace {self.namespace}{near}") from error
        except APIError:
            return

    def no_node(self, name: str, names: Iterable[str]) -> BadInput:
        """The error for a node that is none of ``names``."""
        return BadInput(f"no node {name}{did_you_mean(name, names) or '; kubectl get nodes lists them'}")


def _requests(content: dict[str, Any]) -> Requests:
    """What a pod requests; nothing is known of one that topomend cannot read."""
    try:
        return requests_of(read_pod(content))
    except MalformedObject:
        return {}


def snapshot_of(picture: Picture) -> Snapshot:
    """The nodes and their published states in a picture of ``Cluster.states``."""
    snapshot = changes.apply(Snapshot(), changes.NodesListed(tuple(picture[NODES]), ""))
    return changes.apply(snapshot, changes.PublicationsListed(tuple(picture[NODE_TOPOLOGIES]), ""))


@contextmanager
def _kinds_served(kinds: Iterable[Resource]) -> Iterator[None]:
    """Raise CannotAsk for the first of topomend's own ``kinds`` if one is not found: they are installed together."""
    try:
        yield
    except NotFound as error:
        missing = next(kind.plural for kind in kinds if kind.api_version == API_VERSION)
        raise CannotAsk(f"the API server serves no {missing}.{GROUP}: {INSTALL}") from error


def cluster_options(verb: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a verb kubectl's flags for the cluster, and pass a Cluster as its argument ``cluster``.

    An APIError becomes CannotAsk.
    """

    @click.option("--kubeconfig", metavar="FILE", type=click.Path(), help="The kubeconfig to use.")
    @click.option(
        "--context", metavar="NAME", shell_complete=complete_contexts, help="The kubeconfig's context to use."
    )
    @click.option(
        "-n",
        "--namespace",
        metavar="NAME",
        default="",
        shell_complete=complete_namespaces,
        help="The namespace. Default: that of the context.",
    )
    @wraps(verb)
    def asked(*, kubeconfig: str | None, context: str | None, namespace: str, **arguments: Any) -> _Result:
        with _connected(kubeconfig, context) as client:
            cluster = Cluster(client, namespace or client.access.namespace)
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
    except BadSelection as error:
        raise BadInput(f"{error}{did_you_mean(error.name, error.names)}") from error
    except (NotConfigured, APIError) as error:
        raise CannotAsk(str(error)) from error


def _readable_nodes(content: dict[str, Any]) -> Iterable[Node]:
    try:
        return [read_node(content)]
    except MalformedObject as error:
        echo(f"Node {content['metadata']['name']} is skipped: {error}", err=True)
        return []
