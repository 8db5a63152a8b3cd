"""The wheel, and environments with it and with the packages that it asks for, the lowest or the newest.

uv resolves: pip cannot install the lowest versions. Tests run with the pinned versions of what they import.
"""

import json
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from deploy.manifests import ROOT
from tools.commands import Unavailable, run
from verify.packages.pythons import version

LOWEST, NEWEST = "lowest-direct", "highest"
"""uv's names. The lowest versions are those of the direct dependencies: topomend states none of the others."""

_NAMES = {LOWEST: "lowest", NEWEST: "newest"}

TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "grimp")

UV = str(Path(sys.executable).with_name("uv"))


@dataclass(frozen=True)
class Wheels:
    """The wheels of this working tree: that of ``topomend``, and that of ``topomend-sandbox``, which needs it."""

    topomend: Path
    sandbox: Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment in ``folder`` of the Python at a path, with the ``packages`` LOWEST or NEWEST.

    ``core`` is whether it has none of the extras.
    """

    folder: Path
    python: str
    packages: str
    core: bool = False

    @property
    def name(self) -> str:
        """The version of its Python and the kind of its packages."""
        return f"{version(self.python)} {_NAMES[self.packages]}{', no extra' * self.core}"

    def install(self, wheels: Wheels) -> None:
        """Make it, and install the wheel, what that asks for, and with extras what tests need. Raises Unavailable."""
        run(UV, "venv", "--quiet", "--no-config", "--python", self.python, str(self.folder))
        needed = self.folder / "requirements.txt"
        options = [f"--resolution={self.packages}", f"--python={self.python}", *([] if self.core else ["--all-extras"])]
        # From the project's file: of a wheel, uv takes no requirement for a direct one.
        project = str(ROOT / "pyproject.toml")
        run(UV, "pip", "compile", "--quiet", "--no-config", *options, f"--output-file={needed}", project)
        install = (UV, "pip", "install", "--quiet", "--no-config", "--python", self.program("python"))
        run(*install, f"--requirement={needed}", *([] if self.core else pinned_test_packages()))
        run(*install, "--no-deps", str(wheels.topomend), *([] if self.core else [str(wheels.sandbox)]))
        run(UV, "pip", "check", "--quiet", "--no-config", "--python", self.program("python"))

    def installed(self) -> set[str]:
        """The names of the packages in it."""
        listed = run(UV, "pip", "list", "--format=json", "--no-config", "--python", self.program("python"))
        return {package["name"] for package in json.loads(listed)}

    def program(self, name: str) -> str:
        """The path of one of its programs."""
        return str(self.folder / "bin" / name)

    def run(self, name: str, *arguments: str, seconds: float = 120.0) -> str:
        """Run one of its programs outside of this clone, whose code it must not find. Raises Unavailable."""
        return run(self.program(name), *arguments, folder=self.folder, seconds=seconds, PYTHONPATH="")


def build_wheels(folder: Path) -> Wheels:
    """Both, built into ``folder``. Raises Unavailable."""
    return Wheels(build_wheel(folder), build_wheel(folder, ROOT / "sandbox"))


def build_wheel(folder: Path, project: Path = ROOT) -> Path:
    """The wheel of a project of this working tree, built into ``folder``. Raises Unavailable."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", f"--wheel-dir={folder}")
    run(sys.executable, "-m", "pip", "wheel", *options, str(project))
    name = tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"]
    wheels = list(folder.glob(f"{name.replace('-', '_')}-*.whl"))
    if len(wheels) != 1:
        raise Unavailable(f"pip built {len(wheels)} wheels")
    return wheels[0]


def pinned_test_packages() -> list[str]:
    """TEST_PACKAGES in the versions of requirements/dev.lock."""
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    pinned = {name: re.search(rf"^{name}==(\S+)", lock, re.MULTILINE) for name in TEST_PACKAGES}
    return [f"{name}=={found[1]}" for name, found in pinned.items() if found]
