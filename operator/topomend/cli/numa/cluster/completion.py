"""Shell completion of names that the cluster knows. Offers nothing where the cluster cannot be asked.

Every verb imports it for its flags: what a completion needs is imported there.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import click

from topomend.kube.client import connect
from topomend.kube.connection.access import context_names
from topomend.kube.connection.kubeconfig import NotConfigured
from topomend.kube.errors import APIError
from topomend.kube.resources import NAMESPACES, NODE_TOPOLOGIES, NODES, PODS, Resource


def complete_nodes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The nodes whose names begin with ``incomplete``."""
    del parameter
    return _beginning(_names(context, NODES), incomplete)


def complete_published_nodes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The nodes whose agents publish, and whose names begin with ``incomplete``."""
    del parameter
    return _beginning(_names(context, NODE_TOPOLOGIES), incomplete)


def complete_pools(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The pools of nodes whose names begin with ``incomplete``."""
    from topomend.model.nodes.node_pool import pools_of  # noqa: PLC0415
    from topomend.wire.document import MalformedObject  # noqa: PLC0415
    from topomend.wire.node import read_node  # noqa: PLC0415

    del parameter
    try:
        nodes = [read_node(content) for content in _listed(context, NODES)]
    except MalformedObject:
        return []
    return _beginning(set(pools_of(nodes).values()), incomplete)


def complete_namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The namespaces whose names begin with ``incomplete``."""
    del parameter
    return _beginning(_names(context, NAMESPACES), incomplete)


def complete_pods(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The pods whose names begin with ``incomplete``, written as it begins: with ``pod/`` or without."""
    del parameter
    prefix = "pod/" if incomplete.startswith("pod/") else ""
    return [f"{prefix}{name}" for name in _beginning(_names(context, PODS), incomplete.removeprefix(prefix))]


def complete_pods_and_workloads(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """What ``explain`` takes: pods, written as with ``complete_pods``, kinds, and after a kind its objects' names."""
    from topomend.kube.served_kinds import BUILT_IN, built_in_kind  # noqa: PLC0415

    kind, slash, _ = incomplete.partition("/")
    words = context.params.get(parameter.name or "") or ()
    first = built_in_kind(words[0]) if words and "/" not in words[0] else None
    if first:  # as in explain deploy web
        return _beginning(_names(context, first.resource), incomplete)
    if slash:
        named = built_in_kind(kind)
        return _beginning((f"{kind}/{name}" for name in _names(context, named.resource)), incomplete) if named else []
    kinds = [f"{each.shown}/" for each in BUILT_IN]
    return _beginning(kinds, incomplete) + _beginning(_names(context, PODS), incomplete)


def complete_contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig whose names begin with ``incomplete``."""
    del parameter
    return _beginning(context_names(context.params.get("kubeconfig")), incomplete)


def _names(context: click.Context, kind: Resource) -> list[str]:
    return [item["metadata"]["name"] for item in _listed(context, kind)]


def _listed(context: click.Context, kind: Resource) -> Sequence[dict[str, Any]]:
    """A kind's objects, in the cluster and the namespace that the flags before select."""
    kubeconfig, name = context.params.get("kubeconfig"), context.params.get("context")
    try:
        with closing(connect(kubeconfig, name)) as client:
            namespace = context.params.get("namespace") or client.access.namespace
            return client.list(kind, namespace=namespace if kind.namespaced else "", cached=True).items
    except (NotConfigured, APIError):
        return ()


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
