"""Builds programs from pinned Go modules, each once, into the cache folder of this user.

Go is looked up, or downloaded, as for the sandbox's binary. A folder with ``go.mod`` and ``go.sum`` pins the versions.
"""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from topomend.sandbox.layout import cache_folder
from topomend.sandbox.releases import toolchain
from topomend.sandbox.releases.build import cache_key, locked


class NotBuilt(RuntimeError):
    """A program could not be built, or a module not be downloaded; the text says why."""


@dataclass(frozen=True)
class GoPrograms:
    """The programs of a module: ``packages`` by name, built with these build ``tags`` below ``kept`` in the cache."""

    module: Path
    packages: Mapping[str, str]
    kept: str
    tags: str = ""

    def program(self, name: str) -> Path:
        """The program of that name, built where it is not there yet. Raises NotBuilt.

        Raises SandboxUnavailable where Go is missing and cannot be downloaded.
        """
        sources = {each: (self.module / each).read_bytes() for each in ("go.mod", "go.sum")}
        options = {"package": self.packages[name].encode()} | ({"tags": self.tags.encode()} if self.tags else {})
        folder = cache_folder() / self.kept / cache_key({**sources, **options})
        built = folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "lock", lambda: _say(f"waiting for another build of {name}")):
            if not built.exists():
                _say(f"building {name}, once")
                partial = built.with_suffix(".partial")
                flags = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w", f"-tags={self.tags}", "-o", str(partial)]
                go(self.module, {"GOFLAGS": "-mod=readonly"}, "build", *flags, self.packages[name])
                partial.replace(built)
        return built


def go(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """What ``go`` prints in the folder of a module. Raises NotBuilt, SandboxUnavailable."""
    found = toolchain.find_go(_minimum(folder), _say)
    done = toolchain.run_go(found, folder, {**os.environ, **toolchain.environment(), **environment}, *arguments)
    if done.returncode:
        raise NotBuilt(f"go {arguments[0]} failed in {folder}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def downloaded(folder: Path, environment: Mapping[str, str], module: str) -> Path:
    """The sources of a module, fetched where they are not there, in the version that ``folder`` pins or ``@`` names.

    Raises NotBuilt, SandboxUnavailable.
    """
    return Path(json.loads(go(folder, environment, "mod", "download", "-json", module))["Dir"])


def _minimum(folder: Path) -> str:
    """The version of Go that the module names; 1.26.0 where it names none, as one of schemas alone."""
    named = re.findall(r"^go (\S+)$", (folder / "go.mod").read_text(), re.MULTILINE)
    return str(named[0]) if named else "1.26.0"


def _say(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")
