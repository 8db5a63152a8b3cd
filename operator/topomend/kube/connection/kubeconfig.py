"""Read kubeconfigs as kubectl does: several files as one, and the cluster and user of one context of them.

Owns files, their merging, and the types of fields. Every error names the file, the entry and the field. Leaves the
meaning of an entry's fields to ``access`` and ``credentials``. The rules are those of client-go:
tools/clientcmd/loader.go:ClientConfigLoadingRules, client_config.go:DirectClientConfig.
"""

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from topomend.base.plain_text import plain

MAX_WORDS = 300
"""How much of a message of others is quoted."""

MAX_NAMES = 10
"""How many names an error lists."""


class NotConfigured(ValueError):
    """There is no way to a cluster, or it cannot be used. The text names file, entry and field, and no secret."""


class BadSelection(NotConfigured):
    """The user chose a file or a context that does not exist. ``names`` are the contexts that do."""

    def __init__(self, text: str, name: str = "", names: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.name, self.names = name, names


class NoSuchFile(NotConfigured):
    """None of the kubeconfigs is there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A cluster, user or context of a kubeconfig: its fields, and where it comes from.

    ``context`` is the name of the context that uses it. An entry that the context does not name has no file and no
    fields.
    """

    kind: str
    name: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    file: Path = Path()
    context: str = ""

    def wrong(self, name: str, problem: str) -> NotConfigured:
        """The error for its field ``name``; ``problem`` completes a sentence that begins with the field."""
        context = f", context {self.context}" if self.context else ""
        return NotConfigured(f"{self.file}{context}: {name} of {self.kind} {self.name} {problem}")

    def text(self, name: str) -> str:
        """A field that is text; empty where it is absent."""
        value = self.fields.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(name, "is no text: put it in quotes")
        return value

    def flag(self, name: str) -> bool:
        """A field that is true or false."""
        value = self.fields.get(name)
        if not isinstance(value, bool | None):
            raise self.wrong(name, "is neither true nor false: write one of them, without quotes")
        return bool(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A field that is a list of texts."""
        value = self.fields.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "is no list of texts")
        return tuple(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A field that is a mapping with keys of text."""
        value = self.fields.get(name) or {}
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise self.wrong(name, "is no mapping")
        return value

    def path(self, name: str) -> Path | None:
        """A field that names a file, relative to the folder of the kubeconfig; None where it is absent."""
        text = self.text(name)
        return self.file.absolute().parent / text if text else None

    def read(self, name: str, path: Path) -> bytes:
        """The content of the file that the field ``name`` names."""
        try:
            return path.read_bytes()
        except OSError as error:
            raise self.wrong(name, f"cannot be read: {path}: {error.strerror}") from error

    def pem(self, name: str) -> "Pem | None":
        """A certificate or key: in the field ``<name>-data``, or in the file that ``name`` names; None without both."""
        data, path = self.text(f"{name}-data"), self.path(name)
        if data and path:
            raise self.wrong(f"{name}-data", f"is given and {name} too: give one of them")
        if data:
            content = self._decoded(f"{name}-data", data)
            return Pem(self, f"{name}-data", None, lambda: content)
        if path:
            return Pem(self, name, path, lambda: self.read(name, path))
        return None

    def _decoded(self, name: str, data: str) -> bytes:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except ValueError as error:
            raise self.wrong(name, "is not base64") from error


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key of ``entry`` in its field ``name``; ``path`` is its file, None if it is in the kubeconfig.

    ``read`` returns it as it is now. It raises NotConfigured.
    """

    entry: Entry
    name: str
    path: Path | None
    read: Callable[[], bytes] = field(repr=False)

    def stamp(self) -> object:
        """A value that changes when the file is replaced or written."""
        if self.path is None:
            return None
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size


class Selected(NamedTuple):
    """One context: its name, its namespace (``default`` if it names none), its cluster and its user."""

    context: str
    namespace: str
    cluster: Entry
    user: Entry


class Kubeconfig(NamedTuple):
    """The entries of all files by kind (``clusters``, ``users``, ``contexts``) and name, and the current context."""

    files: tuple[Path, ...]
    entries: Mapping[str, Mapping[str, Entry]]
    current: str

    @property
    def contexts(self) -> list[str]:
        """The names of the contexts."""
        return list(self.entries["contexts"])

    def select(self, context: str | None = None) -> Selected:
        """The entries of ``context``, by default of the current one. Raises BadSelection, NotConfigured."""
        chosen = self._context(context)
        cluster = self._of(chosen, "cluster")
        if not cluster.name:
            raise chosen.wrong("cluster", "names none")
        return Selected(chosen.name, chosen.text("namespace") or "default", cluster, self._of(chosen, "user"))

    def _context(self, context: str | None) -> Entry:
        name = context or self.current
        where, there = _listed(self.files), f"its contexts: {_names(self.contexts)}"
        if not name:
            raise NotConfigured(
                f"{where}: current-context is not set; choose one with kubectl config use-context NAME; {there}"
            )
        entry = self.entries["contexts"].get(name)
        if entry is None and context:
            raise BadSelection(f"{where}: no context {name}; {there}", name, self.contexts)
        if entry is None:
            raise NotConfigured(f"{where}: current-context is {name}, which is no context there; {there}")
        return entry

    def _of(self, context: Entry, kind: str) -> Entry:
        name, there = context.text(kind), self.entries[f"{kind}s"]
        if not name:
            return Entry(kind, context=context.name)
        if name not in there:
            raise context.wrong(kind, f"is {name}, which is not there; the {kind}s are: {_names(there)}")
        entry = there[name]
        return Entry(kind, name, entry.fields, entry.file, context.name)


def paths_of_environment(text: str) -> list[Path]:
    """The files that a value of KUBECONFIG names: each once, in order."""
    return [Path(name) for name in dict.fromkeys(text.split(os.pathsep)) if name]


def load(paths: Sequence[Path]) -> Kubeconfig:
    """The files as one: of entries with the same name the first file's counts as a whole, absent files do not matter.

    Raises NotConfigured where a file cannot be read, NoSuchFile where none is there.
    """
    read = [(path, content) for path in paths if (content := _content(path)) is not None]
    if not read:
        raise NoSuchFile(f"{_listed(paths)}: no such file: set KUBECONFIG, or run in a pod with a service account")
    entries: dict[str, dict[str, Entry]] = {"clusters": {}, "users": {}, "contexts": {}}
    for path, content in read:
        for kind, known in entries.items():
            known.update({entry.name: entry for entry in _entries(path, content, kind) if entry.name not in known})
    current = next(filter(None, (_top(path, content, "current-context", str) for path, content in read)), "")
    return Kubeconfig(tuple(path for path, _ in read), entries, current)


def _content(path: Path) -> Mapping[str, Any] | None:
    """The first document of a file; None where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NotConfigured(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise NotConfigured(f"{path}: is no text in YAML") from error
    content = _read(path, text)
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise NotConfigured(f"{path}: is no kubeconfig: it holds no mapping")
    if _top(path, content, "kind", str) not in ("", "Config"):
        raise NotConfigured(f"{path}: kind is {plain(content['kind'], 40)!r}, not Config")
    return content


def _read(path: Path, text: str) -> Any:
    """The content of a text in JSON, or else in YAML, which is slow to import."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _read_yaml(path, text)


def _read_yaml(path: Path, text: str) -> Any:
    import yaml  # noqa: PLC0415  slow to import, and not needed for JSON

    try:
        return yaml.CSafeLoader(text).get_data()
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        # Not the problem alone: it may quote what stands there.
        raise NotConfigured(f"{path}{line}: is not YAML") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotConfigured(f"{path}: is no text in YAML") from error


def _entries(path: Path, content: Mapping[str, Any], kind: str) -> Iterator[Entry]:
    single, seen = kind.removesuffix("s"), set[str]()
    for listed in filter(None, _top(path, content, kind, list)):
        name = listed.get("name") if isinstance(listed, Mapping) else None
        fields = listed.get(single) if isinstance(listed, Mapping) else None
        if not isinstance(name, str):
            raise NotConfigured(f"{path}: an entry of {kind} has no name that is text")
        if not isinstance(fields, Mapping | None):
            raise NotConfigured(f"{path}: {single} {name} is no mapping")
        if name in seen:
            raise NotConfigured(f"{path}: {single} {name} is there twice")
        seen.add(name)
        yield Entry(single, name, fields or {}, path)


def _top(path: Path, content: Mapping[str, Any], name: str, kind: type) -> Any:
    value = content.get(name)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise NotConfigured(f"{path}: {name} is no {'list' if kind is list else 'text'}")
    return value


def _listed(paths: Sequence[Path]) -> str:
    return " and ".join(str(path) for path in paths)


def _names(names: Mapping[str, object] | Sequence[str]) -> str:
    shown = [plain(name, 80) for name in list(names)[:MAX_NAMES]]
    more = [f"and {len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*shown, *more]) or "none"
