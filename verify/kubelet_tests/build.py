"""Builds the kubelet's own tests of a release, with replay in the place of the functions that ``overlay`` replaces.

The tree in the module cache stays as it is: Go refuses an overlay over the cache, so the module's tree is named through
a link. Owns the test binaries, cached by a hash of their sources and the release. Leaves running them to ``run``.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.prereleases import environment_of, minor_of, write_module
from verify.kubelet_tests import overlay
from verify.kubelet_tests.overlay import Function

from topomend.sandbox.layout import cache_folder
from topomend.sandbox.releases import toolchain
from topomend.sandbox.releases.build import cache_key, locked

MINIMUM_GO = "1.26"

MODULE = "k8s.io/kubernetes"

SINCE = (32, 36, 38)
"""The minor versions at which the added files change: build tags ``since136`` and so on."""


class NotBuilt(RuntimeError):
    """The kubelet's tests could not be built; the text says why."""


@dataclass(frozen=True)
class Binaries:
    """The test binary of each package that the release has, the ``functions`` that replay answers, and the tree."""

    version: str
    binaries: Mapping[str, Path]
    functions: tuple[Function, ...]
    kubernetes: Path


def binaries_of(version: str) -> Binaries:
    """The tests of the release, built first if their sources changed.

    A build takes minutes with a cold Go cache. Raises NotBuilt, NotARelease, NotReplaced if the release's sources
    are not as expected, and SandboxUnavailable if Go is missing and cannot be downloaded.
    """
    minor = minor_of(version)
    go = toolchain.find_go(MINIMUM_GO, on_progress)
    sources = {path.name: path.read_bytes() for path in (*overlay.SOURCES.glob("*.go"), Path(overlay.__file__))}
    folder = cache_folder() / "kubelet-tests" / cache_key({**sources, "version": version.encode()})
    folder.mkdir(parents=True, exist_ok=True)
    kubernetes = folder / "kubernetes"
    with locked(folder / "lock", lambda: on_progress("waiting for another build of the kubelet's tests")):
        # A module cache that was cleaned has no tree any more, in whose folders the tests run.
        if not (folder / "built").exists() or not kubernetes.exists():
            on_progress(f"building the kubelet's tests of {version}, once: 10 minutes, or less with a warm Go cache")
            _build(go, folder, version, minor)
            (folder / "built").touch()
    binaries = {package: _binary(folder, package) for package in overlay.PACKAGES}
    present = {package: binary for package, binary in binaries.items() if binary.exists()}
    return Binaries(version, present, overlay.functions_of(minor), kubernetes)


def _build(go: Path, folder: Path, version: str, minor: int) -> None:
    run = partial(_run, go, folder, environment_of(version))
    write_module(folder, "topomend.io/kubelet-tests", f"{MINIMUM_GO}.0", version, run)
    tree = json.loads(run("mod", "download", "-json", f"{MODULE}@{version}"))["Dir"]
    link = folder / "kubernetes"
    link.unlink(missing_ok=True)
    link.symlink_to(tree)
    run("mod", "edit", f"-replace={MODULE}=./kubernetes")
    files = folder / "overlay"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    (folder / "overlay.json").write_text(json.dumps({"Replace": dict(overlay.write(link, minor, files))}))
    tags = ",".join(f"since1{change}" for change in SINCE if minor >= change)
    for package in overlay.PACKAGES:
        if any((link / package).glob("*_test.go")):
            options = ("-overlay=overlay.json", f"-tags={tags}", "-trimpath", "-ldflags=-s -w", "-vet=off")
            run("test", "-c", *options, "-o", str(_binary(folder, package)), f"{MODULE}/{package}")


def _binary(folder: Path, package: str) -> Path:
    return folder / f"{package.replace('/', '-')}.test"


def _run(go: Path, folder: Path, needed: Mapping[str, str], *arguments: str) -> str:
    environment = {**os.environ, **toolchain.environment(), **needed, "GOFLAGS": "-mod=mod -buildvcs=false"}
    done = toolchain.run_go(go, folder, environment, *arguments)
    if done.returncode:
        raise NotBuilt(f"go {arguments[0]} failed in {folder}: {(done.stderr or done.stdout).strip()[-3000:]}")
    return done.stdout


def on_progress(progress: str) -> None:
    """Say what a user waits for."""
    sys.stderr.write(f"{progress}\n")
