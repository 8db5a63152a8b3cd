"""The version: it is in ``operator/topomend/__init__.py``, and ``make generate`` writes it wherever else a file has it.

Such a place is found by what stands before it, so a new manifest or page needs no entry here.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.manifests import ROOT

from topomend import __version__

VERSION = r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?"
"""A semantic version without build metadata, which no image's tag can have."""

_PLACES = re.compile(
    rf"(topomend:v|app\.kubernetes\.io/version: v|newTag: v|placeholder: v|^ARG VERSION=v|^appVersion: v|^version: |"
    rf"^version = \"|\"topomend==|^Version |/topomend-|/kubectl-numa-v){VERSION}(?![\w.])",
    re.MULTILINE,
)

SEARCHED = ("*.md", "*.yaml", "*.yml", "Dockerfile", "sandbox/pyproject.toml")
KEPT = ("CHANGELOG.md", "tests/*", "docs/decisions/*")
"""What tells of earlier versions."""


def written(text: str, version: str) -> str:
    """``text`` with this version at each place that has one."""
    return _PLACES.sub(lambda place: place[1] + version, text)


def named(text: str) -> set[str]:
    """The versions that a text has at such places."""
    return {place[0].removeprefix(place[1]) for place in _PLACES.finditer(text)}


def files() -> Iterator[Path]:
    """The files that may have the version, of those that git knows."""
    excluded = [f":(exclude){pattern}" for pattern in KEPT]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *SEARCHED, *excluded],  # noqa: S607  git, as the machine has it
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        if (ROOT / name).is_file():
            yield ROOT / name


def main() -> None:
    """Write the version into every file that has it."""
    for path in files():
        text = path.read_text()
        if (made := written(text, __version__)) != text:
            path.write_text(made)
            sys.stdout.write(f"{path.relative_to(ROOT)}: {__version__}\n")


if __name__ == "__main__":
    main()
