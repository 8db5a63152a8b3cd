"""Read a trace to simulate: the documents of a file, as pods that start and pods that end, in order.

Leaves parsing the file to ``input/manifests`` and the simulation to ``replay``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from topomend.cli.input.lists import is_list, items_of
from topomend.cli.input.workload import PodNames, is_pod_or_workload, pods_of, shown
from topomend.model.pods.bound_pod import BoundPod
from topomend.wire.document import Document, MalformedObject
from topomend.wire.pods.bound_pod import read_bound_pod


@dataclass(frozen=True, slots=True)
class PodEnd:
    """The end of a pod, which frees its resources."""

    namespace: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        """What tells the pod from others."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class PassedOver:
    """An object of another kind, such as a Service, as it is ``shown``: ``Service web``."""

    shown: str


Step: TypeAlias = BoundPod | PodEnd | PassedOver


def read_trace(documents: Iterable[Any], names: PodNames) -> Iterator[Step]:
    """The steps of a trace in order. Lists and workloads are expanded, and empty documents skipped.

    ``names`` gives the pods names, and is to be told of ends before the next step is asked for. Raises MalformedObject,
    which names the document, counted from 1, and the field.
    """
    for number, content in enumerate(documents, start=1):
        if content is None:
            continue
        try:
            yield from _steps(Document(content), names)
        except MalformedObject as error:
            raise MalformedObject(f"document {number}: {error}") from error


def _steps(document: Document, names: PodNames) -> Iterator[Step]:
    kind = document["kind"].text(default="Pod")
    if is_list(document):
        for item in items_of(document):
            yield from _steps(item, names)
    elif kind == "PodEnd":
        metadata = document["metadata"]
        yield PodEnd(metadata["namespace"].text(default="default"), metadata["name"].text())
    elif kind == "Pod" or is_pod_or_workload(document.content):
        yield from _pods_at(document, names)
    else:
        yield PassedOver(shown(document.content))


def _pods_at(document: Document, names: PodNames) -> Iterator[BoundPod]:
    try:
        yield from map(read_bound_pod, pods_of(document.content, names))
    except MalformedObject as error:
        raise MalformedObject(f"{document.path}.{error}" if document.path else str(error)) from error
