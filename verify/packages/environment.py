"""The wheel, and environments with it and with the packages that it asks for, the lowest or the newest.

uv resolves: pip cannot install the lowest versions. Tests run with the pinned versions of pytest and its plugins.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from deploy.manifests import ROOT
from tools.commands import Unavailable, run
from verify.packages.pythons import version

LOWEST, NEWEST = "lowest-direct", "highest"
"""uv's names. The lowest versions are those of the direct dependencies: topomend states none of the others."""

_NAMES = {LOWEST: "lowest", NEWEST: "newest"}

TEST_PACKAGES = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")

_UV = str(Path(sys.executable).with_name("uv"))


@dataclass(frozen=True)
class Environment:
    """A virtual environment in ``folder`` of the Python at a path, with the ``packages`` LOWEST or NEWEST."""

    folder: Path
    python: str
    packages: str

    @property
    def name(self) -> str:
        """The version of its Python and the kind of its packages."""
        return f"{version(self.python)} {_NAMES[self.packages]}"

    def install(self, wheel: Path) -> None:
        """Make it, and install the wheel, what it asks for, and what tests need. Raises Unavailable."""
        run(_UV, "venv", "--quiet", "--no-config", "--python", self.python, str(self.folder))
        needed = self.folder / "requirements.txt"
        options = (f"--resolution={self.packages}", f"--python={self.python}", "--extra=sandbox")
        # From the project's file: of a wheel, uv takes no requirement for a direct one.
        project = str(ROOT / "pyproject.toml")
        run(_UV, "pip", "compile", "--quiet", "--no-config", *options, f"--output-file={needed}", project)
        install = (_UV, "pip", "install", "--quiet", "--no-config", "--python", self.program("python"))
        run(*install, f"--requirement={needed}", *pinned_test_packages())
        run(*install, "--no-deps", str(wheel))
        run(_UV, "pip", "check", "--quiet", "--no-config", "--python", self.program("python"))

    def program(self, name: str) -> str:
        """The path of one of its programs."""
        return str(self.folder / "bin" / name)

    def run(self, name: str, *arguments: str, seconds: float = 120.0) -> str:
        """Run one of its programs outside of this clone, whose code it must not find. Raises Unavailable."""
        return run(self.program(name), *arguments, folder=self.folder, seconds=seconds, PYTHONPATH="")


def build_wheel(folder: Path) -> Path:
    """The wheel of this working tree, built into ``folder``. Raises Unavailable."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", f"--wheel-dir={folder}")
    run(sys.executable, "-m", "pip", "wheel", *options, str(ROOT))
    wheels = list(folder.glob("topomend-*.whl"))
    if len(wheels) != 1:
        raise Unavailable(f"pip built {len(wheels)} wheels")
    return wheels[0]


def pinned_test_packages() -> list[str]:
    """TEST_PACKAGES in the versions of requirements/dev.lock."""
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    pinned = {name: re.search(rf"^{name}==(\S+)", lock, re.MULTILINE) for name in TEST_PACKAGES}
    return [f"{name}=={found[1]}" for name, found in pinned.items() if found]
