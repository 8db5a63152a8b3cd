"""The Pythons of this machine that topomend supports. Bringing further ones is left to the machine's administrator."""

import re
import shutil
import tomllib
from pathlib import Path

from deploy.manifests import ROOT
from tools.commands import Unavailable, run, succeeds

_MINORS = range(30)
_PYENV = Path.home() / ".pyenv" / "versions"
"""Where pyenv keeps its Pythons: those that are not selected are on no search path."""


def oldest() -> str:
    """The path of the oldest Python that pyproject.toml allows. Raises Unavailable if this machine does not have it."""
    lower = _least_minor()
    python = _find(lower)
    if not python:
        raise Unavailable(f"Python 3.{lower} is missing, the oldest that topomend supports")
    return python


def newest() -> str:
    """The path of the newest Python of this machine. Raises Unavailable if it has none that topomend supports."""
    found = (_find(minor) for minor in reversed(_MINORS) if minor >= _least_minor())
    python = next(filter(None, found), "")
    if not python:
        raise Unavailable(f"no Python from 3.{_least_minor()} on is installed")
    return python


def _least_minor() -> int:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    least = re.fullmatch(r">=3\.(\d+)", required)
    assert least is not None, required
    return int(least[1])


def _find(minor: int) -> str:
    """A Python 3.``minor`` that runs, on the search path or of pyenv; empty if there is none."""
    name = f"python3.{minor}"
    candidates = [shutil.which(name) or "", *sorted(map(str, _PYENV.glob(f"3.{minor}.*/bin/{name}")), reverse=True)]
    return next((path for path in candidates if path and _runs(path)), "")


def _runs(python: str) -> bool:
    return succeeds(python, "-c", "import ssl, venv")


def version(python: str) -> str:
    """The version of the Python at a path, such as 3.11.7. Raises Unavailable."""
    return run(python, "-c", "import platform; print(platform.python_version())").strip()
