"""Builds the oracle (the Go program in ``kubelet/``) once and finds it again by the hash of its sources.

Go is found, or fetched, as for the sandbox's binary; both programs share most of what is compiled. ``kubelet/go.mod``
pins the default version; for another one the requirements are taken over from that version's own go.mod.
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
LEAST_GO = "1.26"

OLDEST_MINOR = 30
CHANGES = (35, 36, 37)
"""Minor versions since which the oracle needs other code: its files with the build tag ``since135`` and so on."""


class OracleNotBuilt(RuntimeError):
    """The oracle could not be built; the text says why."""


def oracle_binary(version: str = DEFAULT_VERSION) -> Path:
    """The path of the oracle of a Kubernetes release, built first where its sources changed.

    Minutes with a cold Go cache, seconds with a warm one. Raises OracleNotBuilt, and SandboxUnavailable where there is
    no Go and none can be had.
    """
    matched = re.fullmatch(r"v1\.([0-9]{2})\.[0-9]{1,2}", version)
    if not matched or int(matched[1]) < OLDEST_MINOR:
        raise OracleNotBuilt(f"{version!r} is no release from v1.{OLDEST_MINOR}.0 on")
    sources = {
        each.name: each.read_bytes() for each in SOURCES.iterdir() if each.suffix in {".go", ".s", ".mod", ".sum"}
    }
    folder = cache_folder() / "oracle" / cache_key({**sources, "version": version.encode()})
    binary = folder / "kubelet-oracle"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", lambda: _say("another build of the oracle is under way: waiting for it")):
            if not binary.exists():
                _build(binary, version, int(matched[1]))
    return binary


def _build(binary: Path, version: str, minor: int) -> None:
    go = find_go(LEAST_GO, _say)
    _say(f"building the oracle from the packages of kubelet {version}, once: about 4 minutes, 20 s where Go has them")
    sources = SOURCES if version == DEFAULT_VERSION else _sources_for(go, version, binary.parent / "sources")
    mode = "readonly" if sources == SOURCES else "mod"  # of another version no sums are pinned: Go's checksum database
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

    k8s.io/kubernetes names its staging modules by local paths; outside its own tree each needs its release.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns("go.*"))
    (folder / "go.mod").write_text(f"module topomend.io/oracle\n\ngo {LEAST_GO}.0\n")
    own = Path(json.loads(_run(go, folder, "mod", "mod", "download", "-json", f"k8s.io/kubernetes@{version}"))["GoMod"])
    named = json.loads(_run(go, folder, "mod", "mod", "edit", "-json", str(own)))
    staging = {each["Old"]["Path"] for each in named["Replace"]}
    release = f"v0.{version.removeprefix('v1.')}"
    required = [(each["Path"], each["Version"]) for each in named["Require"] if each["Path"] not in staging]
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


def _say(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")
