"""Read a trace to simulate: the documents of a file, as pods that start and pods that end, in order.

Leaves parsing the file to ``cli`` and the simulation to ``replay``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from topomend.model.pod import Pod
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pod import read_pod


@dataclass(frozen=True, slots=True)
class PodEnd:
    """The end of a pod, which frees its resources."""

    namespace: str
    name: str


def read_trace(documents: Iterable[Any]) -> Iterator[Pod | PodEnd]:
    """The steps of a trace in order. Lists are expanded, and empty documents skipped.

    Raises MalformedObject, which names the document, counted from 1, and the field.
    """
    for number, content in enumerate(documents, start=1):
        if content is None:
            continue
        try:
            yield from _steps(Document(content))
        except MalformedObject as error:
            raise MalformedObject(f"document {number}: {error}") from error


def _steps(document: Document) -> Iterator[Pod | PodEnd]:
    kind = document["kind"].text(default="Pod")
    if kind in ("List", "PodList"):
        for item in document["items"]:
            yield from _steps(item)
    elif kind == "PodEnd":
        metadata = document["metadata"]
        yield PodEnd(metadata["namespace"].text(default="default"), metadata["name"].text())
    elif kind == "Pod":
        yield _read_pod_at(document)
    else:
        raise document["kind"].wrong("Pod, List or PodEnd")


def _read_pod_at(document: Document) -> Pod:
    try:
        return read_pod(document.content)
    except MalformedObject as error:
        raise MalformedObject(f"{document.path}.{error}" if document.path else str(error)) from error
