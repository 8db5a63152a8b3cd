"""Kubernetes' files that docstrings name as the source of a rule, and how they differ between two releases."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9_./{},-]*?([A-Za-z0-9_/-]+\.go)\b")

KUBELET = "pkg/kubelet"
"""A file without its folder is one of the kubelet's."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file of one release or both. ``named_in`` are our files that name it, none for a new one beside those."""

    file: str
    text: str
    named_in: tuple[str, ...]


def named_files(root: Path) -> dict[str, tuple[str, ...]]:
    """The Go files that ``root``'s modules name, such as ``topologymanager/policy.go``, with the files that have it."""
    named: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        for name in sorted(set(_NAME.findall(path.read_text()))):
            named.setdefault(name.strip("/"), []).append(str(path.relative_to(root)))
    return {name: tuple(paths) for name, paths in named.items()}


def changes(before: Path, after: Path, named: Mapping[str, Iterable[str]]) -> Iterator[Change]:
    """Files that changed, by path: those that are named, and new ones in the folders of those."""
    old, new = _go_files(before), _go_files(after)
    naming: dict[str, set[str]] = {}
    for name, paths in named.items():
        for file in _meant(name, old | new):
            naming.setdefault(file, set()).update(paths)
    folders = {file.rpartition("/")[0] for file in naming}
    beside = {file for file in new - old if file.rpartition("/")[0] in folders}
    for file in sorted(naming.keys() | beside):
        if text := _difference(before / file, after / file):
            yield Change(file, text, tuple(sorted(naming.get(file, ()))))


def _go_files(root: Path) -> set[str]:
    found = (str(path.relative_to(root)) for part in ("pkg", "cmd") for path in (root / part).rglob("*.go"))
    return {file for file in found if not file.endswith("_test.go")}


def _meant(name: str, files: Iterable[str]) -> set[str]:
    """The files that end with the name: the kubelet's, or any other's where it has none of that name."""
    ending = {file for file in files if f"/{file}".endswith(f"/{name}")}
    return {file for file in ending if file.startswith(KUBELET)} or ending


def _difference(before: Path, after: Path) -> str:
    if not before.exists():
        return "new"
    if not after.exists():
        return "gone"
    old, new = _code(before), _code(after)
    if old == new:
        return ""
    added = removed = 0
    for tag, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            removed, added = removed + old_to - old_from, added + new_to - new_from
    return f"+{added} -{removed}"


def _code(path: Path) -> list[str]:
    """Its lines without comments and blanks."""
    lines = (line.partition("//")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]
