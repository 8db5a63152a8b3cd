"""Versions of Kubernetes that are not released, and what it takes to build programs of their packages.

The module proxy lacks some modules that such a version requires, and its Go may be installed nowhere. Only the oracle
and the kubelet's own tests are built of such versions; no sandbox runs one.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from topomend.replay.gates import NEXT
from topomend.sandbox.releases import go_modules
from topomend.sandbox.releases.go_modules import RunGo, write_go_mod

KUBERNETES = "k8s.io/kubernetes"

ENVIRONMENT = {"GOTOOLCHAIN": "auto"}
"""Go fetches the toolchain that the version asks for, as a module."""


@dataclass(frozen=True)
class Prerelease:
    """A version of the release ``minor``, built with this ``go`` or a later one.

    Of modules that the proxy lacks: no program here imports those that are ``absent``. ``moved`` are the folders of
    k8s.io/kubernetes that became a module; they are taken from the release ``before``. ``instead`` are other versions
    of the same module.
    """

    minor: int
    go: str
    before: str
    absent: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)

    def replacements(self, folder: Path, run: RunGo) -> Iterator[str]:
        """The arguments of ``go mod edit``; makes the modules in ``folder`` that the proxy lacks."""
        for module in self.absent:
            yield f"-replace={module}=./{self._empty(folder, module).relative_to(folder)}"
        for module, moved in self.moved.items():
            tree = json.loads(run("mod", "download", "-json", f"{KUBERNETES}@{self.before}"))["Dir"]
            local = self._empty(folder, module)
            _copy(Path(tree) / moved, local, f"{KUBERNETES}/{moved}", module)
            yield f"-replace={module}=./{local.relative_to(folder)}"
        for module, version in self.instead.items():
            yield f"-replace={module}={module}@{version}"

    def _empty(self, folder: Path, module: str) -> Path:
        """A module without packages."""
        local = folder / "modules" / module.replace("/", "-")
        shutil.rmtree(local, ignore_errors=True)
        local.mkdir(parents=True)
        (local / "go.mod").write_text(f"module {module}\n\ngo {self.go}\n")
        return local


def _copy(source: Path, target: Path, old: str, new: str) -> None:
    """The packages of a folder without their tests, imported by another path."""
    for path in source.rglob("*.go"):
        if not path.name.endswith("_test.go"):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(path.read_text().replace(f'"{old}', f'"{new}'))


PRERELEASES = {
    NEXT: Prerelease(
        minor=38,
        go="1.27.4",
        before="v1.37.2",
        absent=("k8s.io/apiextensions-api",),
        moved={"k8s.io/ktesting": "test/utils/ktesting"},
        instead={"sigs.k8s.io/structured-merge-diff/v7": "v7.0.0"},
    )
}


def minor_of(version: str) -> int:
    """The minor version of a release or of one of ``PRERELEASES``. Raises NotARelease."""
    known = PRERELEASES.get(version)
    return known.minor if known else go_modules.minor_of(version)


def environment_of(version: str) -> Mapping[str, str]:
    """Environment variables for ``go`` where the version's sums are not pinned."""
    return go_modules.ENVIRONMENT | (ENVIRONMENT if version in PRERELEASES else {})


def write_module(folder: Path, module: str, least_go: str, version: str, run: RunGo) -> None:
    """Write the go.mod of ``module`` in ``folder``, which requires the version.

    Raises what ``run`` raises, also where the proxy lacks one of the modules.
    """
    known = PRERELEASES.get(version)
    write_go_mod(folder, module, known.go if known else least_go, version, run)
    if known:
        run("mod", "edit", *known.replacements(folder, run))
