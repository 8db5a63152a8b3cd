"""Files of the kubelet's configuration: which ones it reads, in which order, and whether each is a configuration.

Owns the walk below the folder of drop-ins (filepath.WalkDir) and the kinds that are accepted. What a field means is
left to ``decode``.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from topomend.base.plain_text import plain
from topomend.discover.documents.read import Document as Text
from topomend.discover.documents.read import is_json, read_document
from topomend.discover.documents.value import Members, NotADocument, NotTold, Value, plain_value
from topomend.discover.host_files import SourceUnreadable, read_bytes
from topomend.discover.kubelet_config.decode import fold
from topomend.discover.kubelet_config.merge import VERSIONED_MINOR, as_unstructured
from topomend.wire.document import Document, MalformedObject

MAX_BYTES = 1 << 16
"""Bytes. Real files have 2 to 10 KiB."""

MAX_DROP_INS = 256
NOT_TOLD = "topomend cannot tell how the kubelet reads this"
"""Said of a text in which Kubernetes' parser may differ from the one here: no person writes such a text."""

KIND, API_VERSION = "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"


@dataclass(frozen=True)
class ConfigFile:
    """A file that is YAML or JSON: its first document."""

    path: Path
    text: Text

    @property
    def members(self) -> Members:
        """The members of the document; none where it is no object."""
        return self.text.value if isinstance(self.text.value, Members) else Members()


def read_file(path: Path) -> ConfigFile:
    """Read a file. Raises SourceUnreadable, naming it."""
    try:
        content = read_bytes(path, MAX_BYTES)
    except SourceUnreadable as error:
        raise type(error)(f"{path} {error}") from error
    return file_of(path, content)


def file_of(path: Path, content: bytes) -> ConfigFile:
    """The file of this content. Raises SourceUnreadable, naming it."""
    try:
        return ConfigFile(path, read_document(content))
    except NotTold as error:
        raise SourceUnreadable(f"{path}: {NOT_TOLD}: {plain(str(error), 160)}") from error
    except NotADocument as error:
        language = "JSON" if is_json(content) else "YAML"
        raise SourceUnreadable(f"{path} is not {language}: {plain(str(error), 160)}") from error


def drop_in_paths(folder: Path | None) -> list[Path]:
    """The files below ``folder`` whose names end in ``.conf``, in the order of a walk by name. Raises SourceUnreadable.

    Links are not followed to folders, nor is ``folder`` itself if it is one: the kubelet finds nothing there.
    """
    if folder is None or not _is_folder(folder):
        return []
    paths = []
    for path in _walked(folder):
        paths.append(path)
        if len(paths) > MAX_DROP_INS:
            raise SourceUnreadable(f"folder {folder} has more than {MAX_DROP_INS} files")
    return paths


def _is_folder(path: Path) -> bool:
    """Whether the path is a folder's own, and no link. Raises SourceUnreadable where that cannot be told."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(folder: Path, error: OSError) -> SourceUnreadable:
    return SourceUnreadable(f"folder {folder} cannot be read ({error.strerror})")


def _walked(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise _unreadable(folder, error) from error
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walked(folder / entry.name)
        elif entry.name.endswith(".conf"):
            yield folder / entry.name


def check_file(file: ConfigFile) -> None:
    """Raise SourceUnreadable unless the kubelet takes the file for its configuration."""
    if not isinstance(file.text.value, Members):
        return _check_kind(file, file.text.value)
    return _check_kind(file, Members(tuple((name, value) for name, value in _kinds(file) if value is not None)))


def check_drop_in(file: ConfigFile, minor: int) -> Members:
    """The members of a drop-in, with which the kubelet of a minor release starts. Raises SourceUnreadable otherwise."""
    if file.text.repeated:
        raise SourceUnreadable(f"{file.path} has {file.text.repeated[0][:60]!r} twice, which no drop-in may have")
    version = dict(pair for pair in _kinds(file) if pair[1] is not None).get("apiVersion") or ""
    if version.count("/") > 1:
        raise _other(file, "apiVersion has more than one slash")
    if minor >= VERSIONED_MINOR or not file.members.as_dict().get("kind"):
        _check_kind(file, file.members if isinstance(file.text.value, Members) else file.text.value)
    try:
        members: Members = as_unstructured(file.members)
    except NotADocument as error:
        raise SourceUnreadable(f"{file.path}: {error}") from error
    return members


def _kinds(file: ConfigFile) -> list[tuple[str, str | None]]:
    """The members that tell kind and version, in names of any case (serializer/json/meta.go:Interpret)."""
    named = {"KIND": "kind", "APIVERSION": "apiVersion"}
    found = [(named[fold(name)], value) for name, value in file.members.pairs if fold(name) in named]
    for name, value in found:
        if value is not None and not isinstance(value, str):
            raise _other(file, f"{name} must be a string")
    return found


def _check_kind(file: ConfigFile, content: Value) -> None:
    document = Document(plain_value(content))
    try:
        if document["kind"].text() != KIND or document["apiVersion"].text() != API_VERSION:
            raise document.wrong(f"a {KIND} of {API_VERSION}")
    except MalformedObject as error:
        raise _other(file, str(error)) from error


def _other(file: ConfigFile, why: str) -> SourceUnreadable:
    return SourceUnreadable(f"{file.path} is not a {KIND} of {API_VERSION}: {why}")
