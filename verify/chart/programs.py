"""Builds the programs that try the Helm chart: helm 3, helm 4 and kubeconform, from pinned Go modules.

Go is looked up, or downloaded, as for the sandbox's binary. ``programs/go.mod`` pins the versions.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from topomend.sandbox.build import cache_key, locked
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.toolchain import ENVIRONMENT, find_go, run_go

MODULE = Path(__file__).parent / "programs"

PACKAGES = {
    "helm3": "helm.sh/helm/v3/cmd/helm",
    "helm4": "helm.sh/helm/v4/cmd/helm",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
}


class NotBuilt(RuntimeError):
    """A program could not be built, or a module not be downloaded; the text says why."""


@cache
def program(name: str) -> Path:
    """The program of that name in PACKAGES, built where it is not there yet: three minutes with a cold cache of Go's.

    Raises NotBuilt, and SandboxUnavailable where Go is missing and cannot be downloaded.
    """
    sources = {each: (MODULE / each).read_bytes() for each in ("go.mod", "go.sum")}
    folder = cache_folder() / "chart" / cache_key({**sources, "package": PACKAGES[name].encode()})
    built = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock", lambda: _say(f"waiting for another build of {name}")):
        if not built.exists():
            _say(f"building {name}, once")
            partial = built.with_suffix(".partial")
            options = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(partial))
            go(MODULE, {"GOFLAGS": "-mod=readonly"}, "build", *options, PACKAGES[name])
            partial.replace(built)
    return built


def go(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """What ``go`` prints in the folder of a module. Raises NotBuilt, SandboxUnavailable."""
    found = find_go(_minimum(), _say)
    done = run_go(found, folder, {**os.environ, **ENVIRONMENT, **environment}, *arguments)
    if done.returncode:
        raise NotBuilt(f"go {arguments[0]} failed in {folder}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def run(name: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of PACKAGES on this machine's files alone, without the user's settings of helm."""
    settings = cache_folder() / "chart" / "settings"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HELM_")}
    environment |= {f"HELM_{kind}_HOME": str(settings) for kind in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(program(name)), *arguments],
        input=given,
        env=environment | {"KUBECONFIG": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )


def _minimum() -> str:
    (version,) = re.findall(r"^go (\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    return str(version)


def _say(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")
