"""Builds the oracle (the Go program in ``kubelet/``) once and finds it again by the hash of its sources.

Go is found, or fetched, as for the sandbox's binary; both programs share most of what is compiled.
"""

import os
import subprocess
import sys
from pathlib import Path

from topomend.sandbox.build import cache_key, locked
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.toolchain import find_go

SOURCES = Path(__file__).parent / "kubelet"
LEAST_GO = "1.26"


class OracleNotBuilt(RuntimeError):
    """The oracle could not be built; the text says why."""


def oracle_binary() -> Path:
    """The oracle's path, built first where its sources changed: minutes with a cold Go cache, seconds with a warm one.

    Raises OracleNotBuilt, and SandboxUnavailable where there is no Go and none can be had.
    """
    sources = {
        each.name: each.read_bytes() for each in SOURCES.iterdir() if each.suffix in {".go", ".s", ".mod", ".sum"}
    }
    folder = cache_folder() / "oracle" / cache_key(sources)
    binary = folder / "kubelet-oracle"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", lambda: _say("another build of the oracle is under way: waiting for it")):
            if not binary.exists():
                _build(binary)
    return binary


def _build(binary: Path) -> None:
    go = find_go(LEAST_GO, _say)
    _say("building the oracle from the kubelet's packages, once: about 4 minutes, 20 s where Go has its parts cached")
    partial = binary.with_suffix(".partial")
    done = subprocess.run(
        [str(go), "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(partial), "."],
        cwd=SOURCES,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OracleNotBuilt(f"go build failed in {SOURCES}: {done.stderr.strip()[-2000:]}")
    partial.replace(binary)


def _say(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")
