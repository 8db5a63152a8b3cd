"""Pinned packages, and which entries of an OSV database concern them.

Owns the database's format (https://ossf.github.io/osv-schema): affected versions are named one by one, or by ranges of
events. Leaves where the database comes from to ``__main__``.
"""

import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)

MOST_ENTRY_BYTES = 8 << 20
MOST_SUMMARY = 100


class Unreadable(Exception):
    """The database is not one; the text says what is wrong."""


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """A known vulnerability of a pinned package."""

    package: str
    version: str
    identifier: str
    summary: str


def pinned(lock: str) -> set[tuple[str, str]]:
    """The packages that a lock pins: canonical name and version."""
    return {(canonicalize_name(name), version) for name, version in _PIN.findall(lock)}


def holes(packages: Iterable[tuple[str, str]], database: Path) -> list[Hole]:
    """What the database knows of these packages, sorted. Raises Unreadable."""
    wanted: dict[str, list[str]] = {}
    for name, version in packages:
        wanted.setdefault(name, []).append(version)
    known = set()
    try:
        with zipfile.ZipFile(database) as archive:
            entries = [info for info in archive.infolist() if info.filename.endswith(".json")]
            if not entries:
                raise Unreadable(f"{database} has no entries")
            for info in entries:
                if info.file_size > MOST_ENTRY_BYTES:
                    raise Unreadable(f"{database}: {info.filename} has {info.file_size} bytes")
                known |= set(_holes_of(json.loads(archive.read(info)), wanted))
    except (zipfile.BadZipFile, OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise Unreadable(f"{database} is not an OSV database: {error!r}") from error
    return sorted(known)


def _holes_of(entry: Mapping[str, Any], wanted: Mapping[str, list[str]]) -> Iterable[Hole]:
    if entry.get("withdrawn"):
        return
    for affected in entry.get("affected", ()):
        package = affected.get("package", {})
        name = canonicalize_name(package.get("name", ""))
        if package.get("ecosystem") != "PyPI" or name not in wanted:
            continue
        for version in wanted[name]:
            if _is_affected(affected, version):
                summary = " ".join(str(entry.get("summary") or entry.get("details") or "").split())
                yield Hole(name, version, entry["id"], summary[:MOST_SUMMARY])


def _is_affected(affected: Mapping[str, Any], version: str) -> bool:
    if version in affected.get("versions", ()):
        return True
    ranges = (span for span in affected.get("ranges", ()) if span.get("type") in ("ECOSYSTEM", "SEMVER"))
    return any(_is_within(span.get("events", ()), Version(version)) for span in ranges)


def _is_within(events: Iterable[Mapping[str, str]], version: Version) -> bool:
    """Whether the last event at or before the version introduces the vulnerability (the schema's own algorithm)."""
    is_within = False
    for event in sorted(events, key=_version_of):
        bound = _version_of(event)
        if "introduced" in event:
            is_within = is_within or version >= bound
        else:
            is_past = version > bound if "last_affected" in event else version >= bound
            is_within = is_within and not is_past
    return is_within


def _version_of(event: Mapping[str, str]) -> Version:
    text = next(iter(event.values()))
    try:
        return Version(text)
    except InvalidVersion as error:
        raise Unreadable(f"the database has the version {text!r}, which is none") from error
