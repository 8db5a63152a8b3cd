"""Builds the oracle, the Go program in ``kubelet/``, and caches it by a hash of its sources.

Go is looked up, or downloaded, as for the sandbox's binary; the two programs share most packages. ``kubelet/go.mod``
pins the default version; for another version the requirements come from that version's own go.mod.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from topomend.model.kubelet import DEFAULT_VERSION
from topomend.sandbox.build import cache_key, locked
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.toolchain import find_go

SOURCES = Path(__file__).parent / "kubelet"
MINIMUM_GO = "1.26"

OLDEST_MINOR = 30
CHANGES = (35, 36, 37)
"""Minor versions at which the oracle's code changes: files with the build tag ``since135`` and so on."""


class OracleNotBuilt(RuntimeError):
    """The oracle could not be built; the text says why."""


def oracle_binary(version: str = DEFAULT_VERSION) -> Path:
    """The oracle of a Kubernetes release; built first if its sources changed.

    A build takes minutes with a cold Go cache, seconds with a warm one. Raises OracleNotBuilt, and SandboxUnavailable
    if Go is missing and cannot be downloaded.
    """
    matched = re.fullmatch(r"v1\.([0-9]{2})\.[0-9]{1,2}", version)
    if not matched or int(matched[1]) < OLDEST_MINOR:
        raise OracleNotBuilt(f"{version!r} is not a release: give one from v1.{OLDEST_MINOR}.0 on")
    sources = {
        path.name: path.read_bytes() for path in SOURCES.iterdir() if path.suffix in {".go", ".s", ".mod", ".sum"}
    }
    folder = cache_folder() / "oracle" / cache_key({**sources, "version": version.encode()})
    binary = folder / "kubelet-oracle"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", lambda: _print("waiting for another build of the oracle")):
            if not binary.exists():
                _build(binary, version, int(matched[1]))
    return binary


def _build(binary: Path, version: str, minor: int) -> None:
    go = find_go(MINIMUM_GO, _print)
    _print(f"building the oracle from the packages of kubelet {version}, once: 4 minutes, or 20 s with a warm Go cache")
    sources = SOURCES if version == DEFAULT_VERSION else _sources_for(go, version, binary.parent / "sources")
    mode = (
        "readonly" if sources == SOURCES else "mod"
    )  # no sums are pinned for another version: Go's checksum database has them
    tags = ",".join(f"since1{change}" for change in CHANGES if minor >= change)
    partial = binary.with_suffix(".partial")
    _run(
        go,
        sources,
        mode,
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
    """The sources with a go.mod for another version.

    k8s.io/kubernetes replaces its staging modules by local paths; outside its own tree each needs its release.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("go.*"))
    (folder / "go.mod").write_text(f"module topomend.io/oracle\n\ngo {MINIMUM_GO}.0\n")
    own = Path(json.loads(_run(go, folder, "mod", "mod", "download", "-json", f"k8s.io/kubernetes@{version}"))["GoMod"])
    named = json.loads(_run(go, folder, "mod", "mod", "edit", "-json", str(own)))
    staging = {replaced["Old"]["Path"] for replaced in named["Replace"]}
    release = f"v0.{version.removeprefix('v1.')}"
    required = [(module["Path"], module["Version"]) for module in named["Require"] if module["Path"] not in staging]
    required += [("k8s.io/kubernetes", version), *((path, release) for path in sorted(staging))]
    changes = [f"-require={path}@{wanted}" for path, wanted in required]
    changes += [f"-replace={path}={path}@{release}" for path in sorted(staging)]
    _run(go, folder, "mod", "mod", "edit", *changes)
    return folder


def _run(go: Path, folder: Path, mode: str, *arguments: str) -> str:
    done = subprocess.run(
        [str(go), *arguments],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": f"-mod={mode}", "GOWORK": "off"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise OracleNotBuilt(f"go {arguments[0]} failed in {folder}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _print(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")
