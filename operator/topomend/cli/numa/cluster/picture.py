"""Pictures of a cluster's objects: one for an answer. ``follow`` has those for ``--watch``.

Owns lists. What an object means is left to the reader of its source.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from topomend.kube.client import Client
from topomend.kube.errors import Forbidden
from topomend.kube.resources import Resource

Reader = Callable[[dict[str, Any]], Iterable[Any]]


class Source(NamedTuple):
    """The objects of one kind that a verb reads, and their reader. No namespace means all of them.

    If the user may not list them, ``on_refused`` is told, and there are none; without it that is an error. ``shape`` is
    a TypedDict of ``wire.shapes`` with all fields that the reader asks for, ``shaped_reader`` as for ``Client.read``.
    """

    resource: Resource
    reader: Reader
    namespace: str = ""
    fields: str = ""
    labels: str = ""
    on_refused: Callable[[], None] | None = None
    shape: type | None = None
    shaped_reader: Reader | None = None


Picture = Mapping[Resource, Sequence[Any]]
"""By kind, what the source's reader made of its objects."""


def take(client: Client, sources: Iterable[Source]) -> Picture:
    """One picture, as the API server has the objects now. Raises APIError and what the readers raise."""
    return {source.resource: _taken(client, source) for source in sources}


def _taken(client: Client, source: Source) -> Sequence[Any]:
    try:
        return client.read(
            source.resource,
            source.reader,
            namespace=source.namespace,
            fields=source.fields,
            labels=source.labels,
            shape=source.shape,
            shaped_reader=source.shaped_reader,
        ).items
    except Forbidden:
        if source.on_refused is None:
            raise
        source.on_refused()
        return ()
