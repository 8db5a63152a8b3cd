"""Makes a release of this commit in ``build/release/VERSION``: ``make release``.

Owns the order, and what is refused before anything is made. Publishing is a person's: docs/contribute/release.md.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from deploy.image import build
from deploy.manifests import ROOT
from deploy.release import images, packages, signature
from deploy.release.archive import NotPacked
from deploy.release.documents import insights, statement, vex
from deploy.release.kubectl_plugin import krew, licences, plugin
from deploy.release.kubectl_plugin.standalone import PLATFORMS, Pythons, Unsafe
from deploy.release.readiness import Clone, refusals, section
from tools.commands import Unavailable
from tools.go_programs import NotBuilt

from topomend import __version__
from topomend.sandbox.failures import SandboxUnavailable


@dataclass(frozen=True, slots=True)
class Order:
    """What to release: the repository's URL, the key that signs, how images are built, and for which processors."""

    source: str
    key: Path
    recipe: images.Recipe
    architectures: tuple[str, ...]


def make(order: Order, folder: Path) -> list[Path]:
    """Make the release of this working tree in an empty ``folder``, and return its files.

    Raises build.Failed, Invalid, NotBuilt, NotPacked, SandboxUnavailable, Unavailable, Unsafe.
    """
    epoch = order.recipe.inputs.commit.epoch
    _say("wheels, sdist and chart")
    made = [*packages.python_packages(folder, epoch), packages.chart_package(folder, epoch)]
    wheel = next(path for path in made if path.match("topomend-*.whl"))
    _say("the licences of the plugin's libraries")
    parts = plugin.Parts(Pythons.download(), licences.texts(order.recipe), wheel)
    for platform in PLATFORMS:
        _say(f"the plugin for {platform}")
        archive = folder / plugin.archive_name(__version__, platform)
        plugin.build(parts, platform, archive, epoch)
        made.append(archive)
    bom = folder / f"kubectl-numa-v{__version__}.cdx.json"
    made.append(packages.plugin_bom(bom, parts.pythons.version, epoch))
    made.append(folder / f"{krew.NAME}.yaml")
    made[-1].write_text(
        krew.manifest(__version__, order.source, {path.name: statement.digest(path) for path in made[:-1]})
    )
    krew.validate(made[-1])
    for architecture in order.architectures:
        _say(f"the image for {architecture}")
        stem = f"topomend-v{__version__}-linux-{architecture}"
        made += images.build_image(order.recipe, f"topomend:v{__version__}", architecture, folder, stem)
    made += documents(order.source, epoch, folder)
    provenance = folder / "provenance.json"
    parameters = {"version": __version__, "epoch": epoch, "architectures": list(order.architectures)}
    provenance.write_text(statement.statement(made, order.recipe.inputs.commit.name, order.source, parameters))
    sums = folder / "SHA256SUMS"
    sums.write_text(statement.sums([*made, provenance]))
    return [*made, provenance, sums, *signature.sign(sums, order.key)]


def documents(source: str, epoch: int, folder: Path) -> list[Path]:
    """Write what a release says of its security to ``folder``."""
    told = section(Clone.read(ROOT).changelog, __version__)
    # A trial of a release may come before its section.
    day = told.day if told else datetime.fromtimestamp(epoch, UTC).date()
    statements, file = folder / vex.file_name(__version__), folder / "SECURITY-INSIGHTS.yml"
    statements.write_text(vex.document(__version__, source, epoch))
    file.write_text(insights.document(__version__, source, day.isoformat()))
    return [statements, file]


def complaints(options: argparse.Namespace) -> list[str]:
    """What is wrong with the command line and the clone."""
    if shutil.which("git") is None:
        return ["git is missing: install it"]
    try:
        found = refusals(Clone.read(ROOT))
    except subprocess.CalledProcessError as error:
        return [f"this is no clone of the repository: {error.stderr.strip()}"]
    address = urlsplit(options.source)
    if address.scheme != "https" or not address.netloc:
        found.append(
            "SOURCE must be the repository's URL, https://..., below which krew finds releases/download/VERSION"
        )
    if not options.key:
        found.append("KEY must name cosign's private key: make release-key makes cosign.key")
    elif not Path(options.key).is_file():
        found.append(f"there is no key {options.key}: make release-key makes cosign.key")
    elif "COSIGN_PASSWORD" not in os.environ:
        found.append("COSIGN_PASSWORD must have the key's password, even where that is empty")
    return found


def unbuildable(engine: build.Engine | None, architectures: Sequence[str]) -> list[str]:
    """Why this machine cannot build the images of these processors."""
    if engine is None:
        return ["no program here can build an image: install docker with buildx, podman or buildah"]
    # docker may build on another machine, or by a QEMU of its own.
    foreign = [] if engine.name == "docker" else [each for each in architectures if not images.runs(each)]
    return [
        f"this kernel runs no programs of {each}, of which {engine.name} needs two short ones: install QEMU's user "
        "emulation and its binfmt files (Debian: qemu-user-static)"
        for each in foreign
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release. Exits with 1 if a part cannot be made, with 2 if the clone or the command line is not ready."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description=main.__doc__)
    parser.add_argument("--source", default="", metavar="URL", help="where the sources and the releases are")
    parser.add_argument("--key", default="", metavar="FILE", help="cosign's private key")
    parser.add_argument("--engine", choices=build.ENGINES, help="builds the images; default: the first that works")
    parser.add_argument("--base", default="", help="the base image, best by digest: python:3.13-slim@sha256:...")
    parser.add_argument("--architecture", choices=images.ARCHITECTURES, action="append", help="default: both")
    parser.add_argument("flags", nargs="*", help="after --: more flags of the engine's build command")
    options = parser.parse_args(arguments)
    engine = build.Engine(options.engine) if options.engine else build.find_engine()
    architectures = tuple(options.architecture or images.ARCHITECTURES)
    found = [*complaints(options), *unbuildable(engine, architectures)]
    if engine is None or found:
        sys.stderr.write("".join(f"make release: {each}\n" for each in found))
        return 2
    if "@sha256:" not in options.base:
        _say("BASE names no digest, so the same commit makes other images another day: python:3.13-slim@sha256:...")
    source, commit = options.source.rstrip("/"), build.Commit.checked_out()
    inputs = build.Inputs(commit, f"v{__version__}", source, options.base, tuple(options.flags))
    order = Order(source, Path(options.key), images.Recipe(engine, inputs), architectures)
    return released(order, ROOT / "build" / "release" / __version__)


def released(order: Order, folder: Path) -> int:
    """Make the release in ``folder``, whose earlier content is removed, and print its files. Returns an exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        made = make(order, folder)
    except (
        build.Failed, krew.Invalid, NotBuilt, NotPacked, SandboxUnavailable, Unavailable, Unsafe
    ) as failure:  # fmt: skip
        sys.stderr.write(f"make release: {failure}\n")
        return 1
    for path in made:
        sys.stdout.write(f"{path.stat().st_size / (1 << 20):8.1f} MiB  {path.name}\n")
    sys.stdout.write(f"in {folder}; docs/contribute/release.md says how to publish it\n")
    return 0


def _say(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")


if __name__ == "__main__":
    sys.exit(main())
