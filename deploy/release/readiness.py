"""Whether a version can be released from a clone: what a release refuses, each with what to do.

The changelog keeps to https://keepachangelog.com: a section ``## [1.2.3] - 2026-01-31`` for each version.
"""

import re
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from topomend import __version__


@dataclass(frozen=True, slots=True)
class Clone:
    """What a clone has: the text of ``git status --porcelain``, its tags, its changelog."""

    changes: str
    tags: frozenset[str]
    changelog: str

    @classmethod
    def read(cls, root: Path) -> "Clone":
        """The clone at ``root``. Raises CalledProcessError where git fails."""
        tags = frozenset(_git(root, "tag", "--list").split())
        return cls(_git(root, "status", "--porcelain"), tags, (root / "CHANGELOG.md").read_text())


@dataclass(frozen=True, slots=True)
class Section:
    """What the changelog says of a version."""

    day: date
    text: str


def section(changelog: str, version: str) -> Section | None:
    """The section of that version, or None where there is none with a date and a text."""
    heading = re.search(rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d{{2}}-\d{{2}})$", changelog, re.MULTILINE)
    if heading is None:
        return None
    text = re.split(r"^## ", changelog[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip()
    try:
        return Section(date.fromisoformat(heading[1]), text) if text else None
    except ValueError:
        return None


def refusals(clone: Clone, version: str = __version__) -> list[str]:
    """Why this version cannot be released from the clone; empty where it can."""
    reasons = []
    if clone.changes:
        shown = ", ".join(line[3:] for line in clone.changes.splitlines()[:5])
        reasons.append(f"the working tree has changes ({shown}): commit or stash them")
    if f"v{version}" in clone.tags:
        reasons.append(
            f"v{version} is already tagged: set the next version in operator/topomend/__init__.py, run make generate"
        )
    if section(clone.changelog, version) is None:
        reasons.append(
            f"CHANGELOG.md has no section for {version}: write it under a line '## [{version}] - YYYY-MM-DD'"
        )
    return reasons


def _git(root: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
