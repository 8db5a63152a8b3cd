"""Pictures of a cluster's objects for ``--watch``: one after another, each after a change.

Owns lists and watches that go on. What an object means is left to the reader of its source.
"""

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topomend.cli.numa.cluster.picture import Picture, Source
from topomend.kube.client import Client
from topomend.kube.errors import Forbidden, Gone, Unanswered
from topomend.kube.resources import Resource

SETTLE_SECONDS = 0.3
"""How long a change waits for others, so that a burst of changes makes one picture."""

PAUSE_SECONDS = 1.0
"""The time between the end of a broken watch and the next list."""

_Key = tuple[str, str]


@dataclass(frozen=True)
class _Listed:
    source: Source
    values: Mapping[_Key, tuple[Any, ...]]


@dataclass(frozen=True)
class _Changed:
    source: Source
    key: _Key
    values: tuple[Any, ...]


@dataclass(frozen=True)
class _Failed:
    error: Exception


_News = _Listed | _Changed | _Failed


def follow(client: Client, sources: Sequence[Source]) -> Iterator[Picture]:
    """A picture at once, and another after each change, until the API server no longer answers.

    Raises APIError and what the readers raise.
    """
    news: queue.SimpleQueue[_News] = queue.SimpleQueue()
    for source in sources:
        threading.Thread(target=_watch, args=(client, source, news), daemon=True).start()
    objects: dict[Resource, dict[_Key, tuple[Any, ...]]] = {}
    while True:
        for item in _batch(news):
            if isinstance(item, _Failed):
                raise item.error
            _apply(objects, item)
        if len(objects) == len(sources):
            yield {kind: [value for values in by_key.values() for value in values] for kind, by_key in objects.items()}


def _batch(news: "queue.SimpleQueue[_News]") -> Iterator[_News]:
    """The next news, and further news that arrives within ``SETTLE_SECONDS``."""
    yield news.get()
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            yield news.get(timeout=left)
        except queue.Empty:
            return


def _apply(objects: dict[Resource, dict[_Key, tuple[Any, ...]]], item: _Listed | _Changed) -> None:
    if isinstance(item, _Listed):
        objects[item.source.resource] = dict(item.values)
    elif item.values:
        objects[item.source.resource][item.key] = item.values
    else:
        objects[item.source.resource].pop(item.key, None)


def _watch(client: Client, source: Source, news: "queue.SimpleQueue[_News]") -> None:
    """List and watch one kind again and again. A list that fails is the end; a watch that breaks off is not."""
    try:
        while True:
            version = _list(client, source, news)
            try:
                _stream(client, source, version, news)
            except (Gone, Unanswered):
                time.sleep(PAUSE_SECONDS)
    except Forbidden as error:
        if source.on_refused is None:
            news.put(_Failed(error))
            return
        source.on_refused()
        news.put(_Listed(source, {}))
    except Exception as error:  # noqa: BLE001 - the main thread raises it
        news.put(_Failed(error))


def _list(client: Client, source: Source, news: "queue.SimpleQueue[_News]") -> str:
    listing = client.read(
        source.resource,
        lambda content: [(_key(content), tuple(source.reader(content)))],
        namespace=source.namespace,
        fields=source.fields,
        labels=source.labels,
    )
    news.put(_Listed(source, dict(listing.items)))
    return listing.version


def _stream(client: Client, source: Source, version: str, news: "queue.SimpleQueue[_News]") -> None:
    events = client.watch(
        source.resource, version, namespace=source.namespace, fields=source.fields, labels=source.labels
    )
    for event in events:
        values = () if event.deleted else tuple(source.reader(event.content))
        news.put(_Changed(source, _key(event.content), values))


def _key(content: Mapping[str, Any]) -> _Key:
    metadata = content["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])
