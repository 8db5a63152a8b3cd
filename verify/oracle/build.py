"""Builds the oracle, the Go program in ``kubelet/``, and caches it by a hash of its sources.

Go is looked up, or downloaded, as for the sandbox's binary; the two programs share most packages. ``kubelet/go.mod``
pins the default version; for another version the requirements come from that version's own go.mod.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from topomend.model.kubelet import DEFAULT_VERSION
from topomend.sandbox import toolchain
from topomend.sandbox.build import cache_key, locked
from topomend.sandbox.go_modules import ENVIRONMENT, NotARelease, minor_of, write_go_mod
from topomend.sandbox.layout import cache_folder

SOURCES = Path(__file__).parent / "kubelet"
MINIMUM_GO = "1.26"

CHANGES = (35, 36, 37)
"""Minor versions at which the oracle's code changes: files with the build tag ``since135`` and so on."""


class OracleNotBuilt(RuntimeError):
    """The oracle could not be built; the text says why."""


def oracle_binary(version: str = DEFAULT_VERSION) -> Path:
    """The oracle of a Kubernetes release; built first if its sources changed.

    A build takes minutes with a cold Go cache, seconds with a warm one. Raises OracleNotBuilt, and SandboxUnavailable
    if Go is missing and cannot be downloaded.
    """
    try:
        minor = minor_of(version)
    except NotARelease as error:
        raise OracleNotBuilt(str(error)) from error
    sources = {
        path.name: path.read_bytes() for path in SOURCES.iterdir() if path.suffix in {".go", ".s", ".mod", ".sum"}
    }
    folder = cache_folder() / "oracle" / cache_key({**sources, "version": version.encode()})
    binary = folder / "kubelet-oracle"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", lambda: _print("waiting for another build of the oracle")):
            if not binary.exists():
                _build(binary, version, minor)
    return binary


def _build(binary: Path, version: str, minor: int) -> None:
    go = toolchain.find_go(MINIMUM_GO, _print)
    _print(f"building the oracle from the packages of kubelet {version}, once: 4 minutes, or 20 s with a warm Go cache")
    sources = SOURCES if version == DEFAULT_VERSION else _sources_for(go, version, binary.parent / "sources")
    environment = {"GOFLAGS": "-mod=readonly"} if sources == SOURCES else ENVIRONMENT
    tags = ",".join(f"since1{change}" for change in CHANGES if minor >= change)
    partial = binary.with_suffix(".partial")
    _run(
        go,
        sources,
        environment,
        "build",
        f"-tags={tags}",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags=-s -w",
        "-o",
        str(partial),
    )
    partial.replace(binary)


def _sources_for(go: Path, version: str, folder: Path) -> Path:
    """The sources with a go.mod for another version."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("go.*"))
    write_go_mod(folder, "topomend.io/oracle", f"{MINIMUM_GO}.0", version, partial(_run, go, folder, ENVIRONMENT))
    return folder


def _run(go: Path, folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    done = toolchain.run_go(go, folder, {**os.environ, **toolchain.ENVIRONMENT, **environment}, *arguments)
    if done.returncode:
        raise OracleNotBuilt(f"go {arguments[0]} failed in {folder}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _print(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")
