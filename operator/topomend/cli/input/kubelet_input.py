"""What a kubelet reads, made of a file that some other program turns into it: the noun, and what its makers share."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topomend.check.finding import Subject
from topomend.cli.output.failures import BadInput
from topomend.discover.documents.read import read_document
from topomend.discover.documents.value import NotADocument, plain_value
from topomend.discover.kubelet_config.files import API_VERSION, KIND, ConfigFile, file_of
from topomend.discover.kubelet_config.kubelet_process import Flags
from topomend.wire.document import Document, MalformedObject


@dataclass(frozen=True)
class KubeletInput:
    """The kubelet's own file, if it has one, its drop-ins by name, and its flags.

    ``flags`` is None where the file that was read tells nothing of them. ``unknown`` is what also counts and is not in
    that file.
    """

    subject: Subject
    file: ConfigFile | None
    drop_ins: Mapping[str, ConfigFile] = field(default_factory=dict)
    flags: Flags | None = None
    unknown: tuple[str, ...] = ()


def configuration(name: str, content: Mapping[str, Any]) -> ConfigFile:
    """A KubeletConfiguration that a program writes to a file of this name. Raises SourceUnreadable."""
    written = {"apiVersion": API_VERSION, "kind": KIND, **content}
    return file_of(Path(name), json.dumps(written).encode())


def first_object(content: bytes) -> Document | None:
    """The first document of a file; None where it is no object or cannot be read, which the kubelet's reader names."""
    try:
        value = plain_value(read_document(content).value)
    except NotADocument:
        return None
    return Document(value) if isinstance(value, dict) else None


@contextmanager
def naming(name: str) -> Iterator[None]:
    """What is malformed in the block is bad input of the file of this name."""
    try:
        yield
    except MalformedObject as error:
        raise BadInput(f"{name}: {error}") from error
