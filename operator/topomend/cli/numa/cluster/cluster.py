"""The cluster that a verb reads: the flags that select it, its client, and a snapshot of its nodes.

Every verb imports it, ``show`` too, whose time is mostly that of imports: what only some verbs need is imported there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import click

from topomend.cli.input.did_you_mean import did_you_mean, nearest
from topomend.cli.numa.cluster.completion import complete_contexts, complete_namespaces
from topomend.cli.numa.cluster.picture import Picture, Source, take
from topomend.cli.output.console import waiting
from topomend.cli.output.failures import BadInput, CannotAsk
from topomend.kube.client import Client, connect
from topomend.kube.connection.kubeconfig import BadSelection, NotConfigured
from topomend.kube.errors import APIError, Forbidden, Invalid, NotFound, Unanswered, Untrusted
from topomend.kube.resources import (
    BUDGETS,
    NAMESPACES,
    NODE_TOPOLOGIES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RELAUNCHES,
    UNENDED,
    Resource,
)
from topomend.wire.group import API_VERSION, GROUP
from topomend.wire.shapes import AdmittingTopology, ChosenNode

if TYPE_CHECKING:
    from topomend.cache import changes
    from topomend.cache.snapshot import Snapshot
    from topomend.cli.numa.cluster.states import PublishedReader
    from topomend.decide.diagnosis.totals import Requests
    from topomend.model.pods.scheduling import Placement

_Result = TypeVar("_Result")

FEW_NODES = 8
"""For so many nodes their pods are listed node by node, for more all pods at once."""

VIEWER, ADMINISTRATOR = "topomend-viewer", "cluster-admin"
"""The ClusterRoles that suffice for the verbs that read, and for those that write."""

_WITHOUT = {
    NODE_TOPOLOGIES.plural: f"no node's answer is known; the ClusterRole {VIEWER} has this right",
    NODES.plural: "the nodes' taints, labels and totals were not checked",
    RELAUNCHES.plural: "no relaunch is shown",
    BUDGETS.plural: "a pod that a budget keeps may be named",
    PODS.plural: "only pods that hold something now are typical",
    PRIORITY_CLASSES.plural: "the pod counts as one without a priority class",
}
"""What cannot be told without the right to list a resource."""

_WITHOUT_OWNERS = "who owns a pod was told by names"

TOTALS_NOT_CHECKED = (
    "totals were not checked, as you may not list the pods of all namespaces: other pods may leave too little; "
    f"the ClusterRole {VIEWER}, bound for the whole cluster, has the right"
)

_NOT_THERE = "see whether it runs (kubectl cluster-info), or choose another cluster with --context"

NOTHING_PUBLISHED = (
    "no node publishes its topology: there is no NodeTopology object; see whether the agents run "
    "(kubectl get pods -n topomend-agent), then run kubectl numa check"
)


class Cluster:
    """One API server and the selected namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.not_read: list[str] = []
        """The resources of the whole cluster that the user may not list, as far as a verb can do without."""

    @property
    def states(self) -> tuple[Source, ...]:
        """Where the nodes and their published states are read."""
        from topomend.cli.numa.cluster.states import readable_nodes  # noqa: PLC0415

        shaped_reader = partial(self.read_published, is_small=True)
        published = Source(NODE_TOPOLOGIES, self.read_published, shape=AdmittingTopology, shaped_reader=shaped_reader)
        return Source(NODES, readable_nodes, shape=ChosenNode), published

    @property
    def readable_states(self) -> tuple[Source, ...]:
        """The same for a verb that goes on without what the user may not list; ``not_read`` then names it."""
        return tuple(self.if_readable(source) for source in self.states)

    def if_readable(self, source: Source) -> Source:
        """The source, which has no objects if the user may not list them; ``not_read`` then names it."""
        return source._replace(on_refused=lambda: self.note_refused(source.resource.plural))

    def note_refused(self, plural: str) -> None:
        """Remember a resource that the user may not list."""
        if plural not in self.not_read:
            self.not_read.append(plural)

    @property
    def owners_read(self) -> bool:
        """Whether the user may read what is above pods, as far as that was asked."""
        return all(plural in _WITHOUT for plural in self.not_read)

    @property
    def unread(self) -> str:
        """In one line what the user may not list, and what that means for an answer; empty if he may list it all."""
        listed = (f"{plural} (so {_WITHOUT.get(plural, _WITHOUT_OWNERS)})" for plural in self.not_read)
        return f"you may not list {', '.join(listed)}" if self.not_read else ""

    def snapshot_of(self, picture: Picture) -> "Snapshot":
        """The snapshot of a picture of ``readable_states``.

        Without the right to list nodes, the nodes are those that publish; nothing else is known of them.
        """
        from topomend.cli.numa.cluster import states  # noqa: PLC0415

        return states.snapshot_of(picture) if self.nodes_read else states.snapshot_of_published(picture)

    def as_readable(self, placement: "Placement") -> "Placement":
        """A pod's placement; any node if the user may not list nodes, whose labels and taints are then not known."""
        from topomend.model.pods.scheduling import Placement  # noqa: PLC0415

        return placement if self.nodes_read else Placement()

    @property
    def is_partial(self) -> bool:
        """Whether what the user may not list could change which nodes admit a pod."""
        return not {NODES.plural, NODE_TOPOLOGIES.plural}.isdisjoint(self.not_read)

    @property
    def nodes_read(self) -> bool:
        """Whether the user may list nodes."""
        return NODES.plural not in self.not_read

    @cached_property
    def _published(self) -> "PublishedReader":
        from topomend.cli.numa.cluster.states import PublishedReader  # noqa: PLC0415

        return PublishedReader()

    def read_published(
        self, content: dict[str, Any], *, is_small: bool = False
    ) -> "Iterable[changes.Published | changes.Unreadable]":
        """What a NodeTopology object says of its node. ``is_small`` is as for ``TopologyReader.published``."""
        return self._published.read(content, is_small=is_small)

    def snapshot(self) -> "Snapshot":
        """The nodes and the states that their agents publish, read now. Raises APIError, CannotAsk."""
        from topomend.cli.numa.cluster.states import snapshot_of  # noqa: PLC0415

        return self.with_claims(snapshot_of(next(self.pictures(self.states))))

    def with_claims(self, snapshot: "Snapshot") -> "Snapshot":
        """The snapshot that knows which resources claims provide; as it is for users who may not read DeviceClasses."""
        from topomend.cache import changes  # noqa: PLC0415
        from topomend.kube.devices.device_classes import mapped_resources  # noqa: PLC0415

        try:
            return changes.apply(snapshot, changes.DeviceClassesListed(mapped_resources(self.client)))
        except APIError:
            return snapshot

    def requests_on(self, nodes: Collection[str], *, but: str = "") -> "Mapping[str, Requests] | None":
        """What the pods on these nodes request together, by node; None for a user who may not list all pods.

        ``but`` is the uid of a pod that does not count. Raises other APIErrors.
        """
        from topomend.decide.diagnosis.totals import sums_by_node  # noqa: PLC0415

        try:
            return sums_by_node(self._pods_on(nodes, but))
        except Forbidden:
            return None

    def _pods_on(self, nodes: Collection[str], but: str) -> "Iterator[tuple[str, Requests]]":
        """The node and the requests of each pod. For a few nodes the API server is asked about each of them."""
        from topomend.wire.pods.pod_usage import read_usage  # noqa: PLC0415

        def reader(content: dict[str, Any]) -> "Iterable[tuple[str, Requests]]":
            node = content["spec"].get("nodeName", "")
            return [] if node not in nodes or content["metadata"]["uid"] == but else [(node, read_usage(content))]

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
                    # What it needs is loaded where it is asked for.
                    from topomend.cli.numa.cluster.follow import follow  # noqa: PLC0415
                    from topomend.cli.numa.cluster.interrupt import until_interrupted  # noqa: PLC0415

                    yield from until_interrupted(follow(self.client, sources))
                else:
                    yield take(self.client, sources)
        except Invalid as error:  # all else of these requests is ours
            raise BadInput(f"the API server cannot read the selector: {error.message}") from error

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


@contextmanager
def _kinds_served(kinds: Iterable[Resource]) -> Iterator[None]:
    """Raise CannotAsk for the first of topomend's own ``kinds`` if one is not found: they are installed together."""
    try:
        yield
    except NotFound as error:
        from topomend.check.rules.topomend_itself import INSTALL  # noqa: PLC0415

        missing = next(kind.plural for kind in kinds if kind.api_version == API_VERSION)
        raise CannotAsk(f"the API server serves no {missing}.{GROUP}: {INSTALL}") from error


def cluster_options(verb: Callable[..., _Result]) -> Callable[..., _Result]:
    """Give a verb that reads kubectl's flags for the cluster, and pass a Cluster as its argument ``cluster``.

    An APIError becomes CannotAsk; one for want of a right names the role that has it.
    """
    return _cluster_options(verb, VIEWER)


def writing_cluster_options(verb: Callable[..., _Result]) -> Callable[..., _Result]:
    """As ``cluster_options``, for a verb that writes."""
    return _cluster_options(verb, ADMINISTRATOR)


def whole_cluster_options(verb: Callable[..., _Result]) -> Callable[..., _Result]:
    """As ``writing_cluster_options``, for a verb about all namespaces: it takes none, so that nobody expects one."""
    return _connection_options(verb, ADMINISTRATOR)


def _cluster_options(verb: Callable[..., _Result], role: str) -> Callable[..., _Result]:
    return _connection_options(_namespace_option(verb), role)


_namespace_option = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="",
    shell_complete=complete_namespaces,
    help="The namespace. Default: that of the context.",
)


def _connection_options(verb: Callable[..., _Result], role: str) -> Callable[..., _Result]:
    @click.option("--kubeconfig", metavar="FILE", type=click.Path(), help="The kubeconfig to use.")
    @click.option(
        "--context", metavar="NAME", shell_complete=complete_contexts, help="The kubeconfig's context to use."
    )
    @wraps(verb)
    def asked(*, kubeconfig: str | None, context: str | None, namespace: str = "", **arguments: Any) -> _Result:
        with _connected(kubeconfig, context, role) as client:
            cluster = Cluster(client, namespace or client.access.namespace)
            with waiting(lambda: f"asking {client.access.server.url} and working the answer out"):
                return verb(cluster=cluster, **arguments)

    return asked


@contextmanager
def _connected(kubeconfig: str | None, context: str | None, role: str) -> Iterator[Client]:
    try:
        client = connect(kubeconfig, context)
        try:
            yield client
        finally:
            client.close()
    except BadSelection as error:
        near = nearest(error.name, error.names)
        raise BadInput(f"{error}; did you mean {near}?" if near else str(error)) from error
    except Untrusted as error:  # it says what to do
        raise CannotAsk(error.why) from error
    except Unanswered as error:
        raise CannotAsk(f"{error.why}; {_NOT_THERE}") from error
    except (NotConfigured, APIError) as error:
        raise CannotAsk(f"{error}{_who_may(error, role)}") from error


def _who_may(error: Exception, role: str) -> str:
    """Which role has the right that was missing; empty where none was, or where the API server knows no such user."""
    if not isinstance(error, Forbidden) or error.status != HTTPStatus.FORBIDDEN:
        return ""
    return (
        f"; the ClusterRole {role} has the right: have it bound for the whole cluster, by kubectl create "
        f"clusterrolebinding NAME --clusterrole={role} --user=YOU"
    )
