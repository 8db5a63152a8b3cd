"""The plugin as one archive for each platform: a launcher, a Python, and the packages that the plugin imports.

Nothing is frozen, so an archive for any platform can be made on any: the Pythons are standalone ones, the packages are
wheels of that platform, and the launcher is a shell script. Owns the archive's layout.
"""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.manifests import ROOT
from deploy.release.archive import NotPacked, pack
from deploy.release.kubectl_plugin import licences
from deploy.release.kubectl_plugin.standalone import PLATFORMS, Platform, Pythons

LOCK = ROOT / "requirements" / "plugin.lock"
"""The packages that the plugin imports, and theirs: fewer than those of the image."""

LAUNCHER = Path(__file__).with_name("kubectl-numa.sh")

ENTRIES = {
    "kubectl-numa": "kubectl_numa import main; main()",
    "kubectl_complete-numa": "completion import kubectl_complete; kubectl_complete()",
}
"""The programs of an archive, and what each runs below ``topomend.cli``."""


def archive_name(version: str, platform: Platform) -> str:
    """The archive's file name."""
    return f"kubectl-numa-v{version}-{platform}.tar.gz"


@dataclass(frozen=True, slots=True)
class Parts:
    """What archives are made of: Pythons, the licences of their libraries by name, and topomend's wheel."""

    pythons: Pythons
    licences: Mapping[str, bytes]
    wheel: Path


def build(parts: Parts, platform: Platform, archive: Path, epoch: int) -> None:
    """Write the archive for a platform. Raises NotPacked, Unsafe."""
    pythons = parts.pythons
    with tempfile.TemporaryDirectory(prefix="topomend-plugin-") as place:
        folder = Path(place)
        pythons.unpack(platform, folder / "python")
        site = folder / "python" / "lib" / f"python{pythons.minor}" / "site-packages"
        _install(site, platform, pythons.minor, "--require-hashes", "--requirement", str(LOCK))
        _install(site, platform, pythons.minor, str(parts.wheel))
        for name, entry in ENTRIES.items():
            launcher = LAUNCHER.read_text().replace("PYTHON", f"python{pythons.minor}").replace("ENTRY", entry)
            (folder / name).write_text(launcher)
            (folder / name).chmod(0o755)
        shutil.copy(ROOT / "LICENSE", folder)
        licences.write(folder, pythons, site, parts.licences)
        _remove_links(folder)
        pack(folder, archive, epoch)


def _remove_links(folder: Path) -> None:
    """Remove all links: krew unpacks no archive that has one (krew internal/download.extractTARGZ).

    They are further names of Python, which the launcher does not use.
    """
    for path in folder.rglob("*"):
        if path.is_symlink():
            path.unlink()


def _install(site: Path, platform: Platform, minor: str, *packages: str) -> None:
    _uv_install(platform, "--target", str(site), "--python-version", minor, *packages)
    # What uv writes of its own doing differs by run and machine; nothing reads it, and records need not name it.
    shutil.rmtree(site / "bin", ignore_errors=True)
    for path in (site / ".lock", *site.glob("*.dist-info/direct_url.json"), *site.glob("*.dist-info/uv_cache.json")):
        path.unlink(missing_ok=True)
    for record in site.glob("*.dist-info/RECORD"):
        there = [line for line in csv.reader(record.read_text().splitlines()) if (site / line[0]).exists()]
        with record.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(there)


def _uv_install(platform: Platform, *arguments: str) -> None:
    # Byte code would have the time of its making, and records name the folder that a package came from.
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--python-platform", platform.wheels)
    command = [sys.executable, "-m", "uv", "pip", "install", *options, *arguments]
    environment = os.environ | {"UV_LINK_MODE": "copy"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPacked(f"the packages for {platform} cannot be installed: {done.stderr.strip()[-1500:]}")


def main() -> None:
    """Ask whether each locked package has a wheel for each platform; ``make lock`` does, of what it has locked."""
    minor = Pythons.download().minor
    with tempfile.TemporaryDirectory(prefix="topomend-plugin-") as place:
        for platform in PLATFORMS:
            options = ("--dry-run", "--target", place, "--python-version", minor, "--requirement", str(LOCK))
            try:
                _uv_install(platform, *options)
            except NotPacked as failure:
                sys.exit(f"requirements/plugin.lock: {failure}")


if __name__ == "__main__":
    main()
