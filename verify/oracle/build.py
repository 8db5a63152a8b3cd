"""Builds an oracle, a Go program of the kubelet's packages, and caches it by a hash of its sources.

Go is looked up, or downloaded, as for the sandbox's binary; the programs share most packages. A program's go.mod pins
the default version; for another version the requirements come from that version's own go.mod.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.prereleases import environment_of, minor_of, write_module

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.releases import toolchain
from topomend.sandbox.releases.build import cache_key, linker_flags, locked
from topomend.sandbox.releases.go_modules import ENVIRONMENT, NotARelease

MINIMUM_GO = "1.26"


@dataclass(frozen=True)
class Program:
    """An oracle: its ``name``, the folder of its Go ``sources`` and that of its go.mod and go.sum.

    ``changes`` are the minor versions at which its code changes: files with the build tag ``since135`` and so on.
    """

    name: str
    sources: Path
    modules: Path
    changes: tuple[int, ...]

    def read_sources(self) -> Mapping[str, bytes]:
        """The files that make up the module: name -> content."""
        paths = [path for path in self.sources.iterdir() if path.suffix in {".go", ".s"}]
        return {path.name: path.read_bytes() for path in (*paths, self.modules / "go.mod", self.modules / "go.sum")}


_FOLDER = Path(__file__).parent / "kubelet"
MANAGERS = Program("kubelet-oracle", _FOLDER, _FOLDER, (33, 34, 35, 36, 37))
"""The oracle of the kubelet's resource managers."""


class OracleNotBuilt(RuntimeError):
    """The oracle could not be built; the text says why."""


def oracle_binary(version: str = DEFAULT_VERSION, program: Program = MANAGERS) -> Path:
    """The oracle of a Kubernetes release or pre-release; built first if its sources changed.

    A build takes minutes with a cold Go cache, seconds with a warm one. Raises OracleNotBuilt, and SandboxUnavailable
    if Go is missing and cannot be downloaded.
    """
    try:
        minor = minor_of(version)
    except NotARelease as error:
        raise OracleNotBuilt(str(error)) from error
    sources = program.read_sources()
    folder = cache_folder() / "oracle" / cache_key({**sources, "version": version.encode()})
    binary = folder / program.name
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", lambda: _print("waiting for another build of the oracle")):
            if not binary.exists():
                tags = ",".join(f"since1{change}" for change in program.changes if minor >= change)
                _build(binary, version, sources, tags)
    return binary


def _build(binary: Path, version: str, files: Mapping[str, bytes], tags: str) -> None:
    go = toolchain.find_go(MINIMUM_GO, _print)
    _print(f"building {binary.name} from the packages of {version}, once: 4 minutes, or 20 s with a warm Go cache")
    sources = binary.parent / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    sources.mkdir()
    for name, content in files.items():
        (sources / name).write_bytes(content)
    environment = {"GOFLAGS": "-mod=readonly"} if version == DEFAULT_VERSION else environment_of(version)
    if version != DEFAULT_VERSION:
        (sources / "go.sum").unlink()
        write_module(sources, "topomend.io/oracle", f"{MINIMUM_GO}.0", version, partial(_run, go, sources, environment))
    built = binary.with_suffix(".partial")
    options = (f"-tags={tags}", "-trimpath", "-buildvcs=false", "-ldflags", linker_flags(version), "-o", str(built))
    _run(go, sources, environment, "build", *options)
    built.replace(binary)


def run_module(folder: Path) -> str:
    """What the program in the folder of a module prints. Raises OracleNotBuilt."""
    return _run(toolchain.find_go(MINIMUM_GO, _print), folder, ENVIRONMENT, "run", ".")


def _run(go: Path, folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    done = toolchain.run_go(go, folder, {**os.environ, **toolchain.environment(), **environment}, *arguments)
    if done.returncode:
        raise OracleNotBuilt(f"go {arguments[0]} failed in {folder}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _print(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")
