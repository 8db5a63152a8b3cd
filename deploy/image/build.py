"""Builds the image with docker, podman or buildah, for ``make image``, ``make image-twice`` and ``make e2e``.

Owns the flags that make an engine build the same image of the same commit (all times in the image are the commit's),
and reads the result: bill of materials, layers, sizes. The Dockerfile owns the recipe. This program imports nothing but
Python's own library, so it runs on any machine that has an engine: ``python -m deploy.image.build``.
"""

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from deploy.image import provenance

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"

DEFAULT_BASE = re.compile(r"^ARG PYTHON=(\S+)$", re.MULTILINE)

ENGINES = ("docker", "podman", "buildah")

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

SBOM = "opt/topomend/sbom.cdx.json"
OWN_PATHS = ("opt/topomend", "etc/udev")
"""What the first of the image's own layers holds; all before it is the base's."""

MOST_BYTES = 110 << 20
"""Of the image's own layers, together and uncompressed."""


class Failed(Exception):
    """The image could not be built, or is not what it must be."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What an image is built from: a label's text, and the time of all its files, in seconds since 1970."""

    name: str
    epoch: int

    @classmethod
    def checked_out(cls) -> "Commit":
        """The commit of this working tree; ``-dirty`` if the tree has changes. Raises Failed."""
        changes = _output("git", "status", "--porcelain")
        name = _output("git", "rev-parse", "HEAD") + ("-dirty" if changes else "")
        return cls(name, int(_output("git", "log", "-1", "--format=%ct")))


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a build takes: the files of ``folder``, by default of the working tree, and more.

    ``version`` and ``source`` (a URL) become labels, ``base`` replaces the Dockerfile's, and ``flags`` are added to
    the engine's build command.
    """

    commit: Commit
    version: str
    source: str = ""
    base: str = ""
    flags: tuple[str, ...] = ()
    folder: Path = ROOT


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that builds images, one of ``ENGINES``: ``NAME OPTIONS build FLAGS ...``, and the same to save one."""

    name: str
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def build_command(self, tag: str, labels: Mapping[str, str], arguments: Mapping[str, str]) -> list[str]:
        """The command that builds ``tag``, the same image whenever SOURCE_DATE_EPOCH is the same."""
        epoch = arguments["SOURCE_DATE_EPOCH"]
        # Before 1.29 buildah does not know its own platform.
        podman = [f"--timestamp={epoch}", "--identity-label=false", f"--build-arg=BUILDPLATFORM=linux/{native()}"]
        command, *reproducible = {
            # Attestations describe the build itself and so differ each time; the SBOM is in the image.
            "docker": ["buildx build", "--provenance=false", "--output=type=docker,rewrite-timestamp=true"],
            "podman": ["build", *podman],
            "buildah": ["build", *podman],
        }[self.name]
        own = [f"--label={key}={value}" for key, value in labels.items()]
        own += [f"--build-arg={key}={value}" for key, value in arguments.items()]
        return [self.name, *self.options, *command.split(), *self.flags, *reproducible, *own, f"--tag={tag}"]

    def save_command(self, tag: str, archive: Path) -> list[str]:
        """The command that writes the image as docker save does."""
        command, *arguments = {
            "docker": ["save", f"--output={archive}", tag],
            "podman": ["save", "--format=docker-archive", f"--output={archive}", tag],
            "buildah": ["push", "--quiet", tag, f"docker-archive:{archive}:{tag}"],
        }[self.name]
        return [self.name, *self.options, command, *self.flags, *arguments]

    def oci_command(self, tag: str, archive: Path) -> list[str]:
        """The command that writes the image as an archive of an OCI layout, with compressed layers."""
        command, *arguments = {
            # Since docker 25 an archive of docker save is an OCI layout as well.
            "docker": ["save", f"--output={archive}", tag],
            "podman": ["save", "--format=oci-archive", f"--output={archive}", tag],
            "buildah": ["push", "--quiet", tag, f"oci-archive:{archive}:{tag}"],
        }[self.name]
        return [self.name, *self.options, command, *self.flags, *arguments]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: the digest of its tar, its size in bytes, and each entry's digest by path (header and content)."""

    digest: str
    size: int
    entries: dict[str, str]

    @property
    def is_own(self) -> bool:
        """Whether it holds what the Dockerfile copies."""
        return any(path.startswith(OWN_PATHS) for path in self.entries)


@dataclass(frozen=True, slots=True)
class Image:
    """What an archive of an image holds: its configuration as JSON, its layers from the base up, and its SBOM."""

    config: str
    layers: tuple[Layer, ...]
    sbom: bytes

    @property
    def own_layers(self) -> tuple[Layer, ...]:
        """Those that the base has not."""
        first = next((number for number, layer in enumerate(self.layers) if layer.is_own), len(self.layers))
        return self.layers[first:]


def native() -> str:
    """Go's and Debian's name of this machine's processor."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def find_engine() -> Engine | None:
    """The first engine that works on this machine, or None."""
    # docker and podman may be installed without a daemon to talk to.
    if shutil.which("docker") and _succeeds("docker", "buildx", "version") and _succeeds("docker", "info"):
        return Engine("docker")
    if shutil.which("podman") and _succeeds("podman", "info"):
        return Engine("podman")
    return Engine("buildah") if shutil.which("buildah") else None


def build(engine: Engine, tag: str, archive: Path, inputs: Inputs) -> None:
    """Build the image ``tag`` and write it to ``archive``, as docker save does. Raises Failed."""
    commit = inputs.commit
    arguments = {"SOURCE_DATE_EPOCH": str(commit.epoch), "VERSION": inputs.version, "REVISION": commit.name}
    arguments |= {"PYTHON": inputs.base} if inputs.base else {}
    labels = {"org.opencontainers.image.created": datetime.fromtimestamp(commit.epoch, UTC).isoformat()}
    labels |= {"org.opencontainers.image.source": inputs.source} if inputs.source else {}
    _run([*engine.build_command(tag, labels, arguments), *inputs.flags, "."], inputs.folder)
    _run(engine.save_command(tag, archive))


def save_oci(engine: Engine, tag: str, archive: Path) -> None:
    """Write the image ``tag`` to ``archive`` as an OCI layout. Raises Failed."""
    _run(engine.oci_command(tag, archive))


def read_archive(path: Path) -> Image:
    """The image that docker save wrote. Raises Failed where it has no SBOM."""
    with tarfile.open(path) as archive:
        (manifest,) = json.load(_member(archive, "manifest.json"))
        config = _member(archive, manifest["Config"]).read().decode()
        sbom, layers = b"", []
        for name in manifest["Layers"]:
            layer, content = _read_layer(archive, name)
            layers.append(layer)
            sbom = content or sbom
    if not sbom:
        raise Failed(f"the image has no /{SBOM}")
    return Image(config, tuple(layers), sbom)


def differences(one: Image, other: Image) -> list[str]:
    """What differs between two images: paths within layers, and the configuration."""
    differing = [
        f"layer {number}: /{path}"
        for number, (first, second) in enumerate(zip(one.layers, other.layers, strict=False), 1)
        for path in sorted(first.entries.keys() | second.entries.keys())
        if first.entries.get(path) != second.entries.get(path)
    ]
    if [layer.digest for layer in one.layers] != [layer.digest for layer in other.layers]:
        differing = differing or ["the order of the layers' files"]
    if one.config != other.config:
        differing.append("the configuration")
    return differing


def _read_layer(archive: tarfile.TarFile, name: str) -> tuple[Layer, bytes]:
    """The layer of that name, and the SBOM if it is there."""
    digest = hashlib.sha256()
    stream = _member(archive, name)
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    entries, size, sbom = {}, 0, b""
    with tarfile.open(fileobj=_member(archive, name)) as layer:
        for member in layer:
            file = layer.extractfile(member) if member.isfile() else None
            content = file.read() if file else b""
            sbom = content if member.name.removeprefix("./") == SBOM else sbom
            header = (member.mode, member.uid, member.gid, member.mtime, member.type, member.linkname)
            entries[member.name.removeprefix("./")] = f"{header} {hashlib.sha256(content).hexdigest()}"
            size += member.size
    return Layer(digest.hexdigest(), size, entries), sbom


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    member = archive.getmember(name)
    # docker and podman write a layer that is there twice as a link to the first.
    file = archive.extractfile(member)
    if file is None:
        raise Failed(f"{name} is no file in the image's archive")
    return file


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _run(command: Sequence[str], folder: Path = ROOT) -> None:
    code = subprocess.run(command, cwd=folder, check=False).returncode
    if code:
        raise Failed(f"{' '.join(command)} ended with {code}")


def _version() -> str:
    source = (ROOT / "operator" / "topomend" / "__init__.py").read_text()
    matched = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if matched is None:
        raise Failed("operator/topomend/__init__.py has no __version__")
    return f"v{matched[1]}"


def _built(engine: Engine, tag: str, inputs: Inputs) -> Image:
    with tempfile.TemporaryDirectory(prefix="topomend-image-") as folder:
        archive = Path(folder) / "image.tar"
        build(engine, tag, archive, inputs)
        return read_archive(archive)


def _report(image: Image, tag: str) -> None:
    BUILD.mkdir(exist_ok=True)
    (BUILD / "topomend.cdx.json").write_bytes(image.sbom)
    for layer in image.own_layers:
        sys.stdout.write(f"{layer.size / (1 << 20):7.1f} MiB  sha256:{layer.digest}\n")
    size = sum(layer.size for layer in image.own_layers)
    sys.stdout.write(f"{size / (1 << 20):7.1f} MiB  {tag}, beyond its base; SBOM: build/topomend.cdx.json\n")
    if size > MOST_BYTES:
        raise Failed(f"the image is larger than {MOST_BYTES >> 20} MiB beyond its base")


def provenance_of(image: Image, tag: str, inputs: Inputs) -> str:
    """What ``image`` was built from. Raises Failed."""
    matched = DEFAULT_BASE.search((ROOT / "Dockerfile").read_text())
    if matched is None:
        raise Failed("Dockerfile has no ARG PYTHON")
    own = [layer.digest for layer in image.own_layers]
    layers = [layer.digest for layer in image.layers]
    return provenance.statement(
        root=ROOT,
        tag=tag,
        config=image.config,
        layers={"base": layers[: len(layers) - len(own)], "own": own},
        commit=inputs.commit.name,
        source=inputs.source,
        base=inputs.base or matched[1],
        sbom=image.sbom,
        parameters={"version": inputs.version, "epoch": inputs.commit.epoch, "flags": list(inputs.flags)},
    )


def _make(options: argparse.Namespace, engine: Engine) -> None:
    flags = (*(["--no-cache"] if options.twice else []), *options.flags)
    inputs = Inputs(Commit.checked_out(), _version(), options.source, options.base, flags)
    first = _built(engine, options.tag, inputs)
    _report(first, options.tag)
    (BUILD / "topomend.provenance.json").write_text(provenance_of(first, options.tag, inputs))
    if not options.twice:
        return
    second = _built(engine, f"{options.tag}-again", inputs)
    if differing := differences(first, second):
        raise Failed("\n".join(["the second build differs:", *differing[:100]]))
    sys.stdout.write("Built twice: all layers and the configuration are identical.\n")


def main() -> int:
    """Build the image. Exits with 1 if it is too large or the second build differs, with 2 if there is no engine."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--tag", default=f"topomend:{_version()}")
    parser.add_argument("--engine", choices=ENGINES, help="default: the first that works")
    parser.add_argument("--base", default="", help="the base image, best by digest: python:3.13-slim@sha256:...")
    parser.add_argument("--source", default="", metavar="URL", help="a label: where the sources are")
    parser.add_argument("--twice", action="store_true", help="build twice without a cache, and compare")
    parser.add_argument("flags", nargs="*", help="after --: more flags of the engine's build command")
    options = parser.parse_args()
    engine = Engine(options.engine) if options.engine else find_engine()
    if engine is None:
        sys.stderr.write("no program here can build an image: install docker with buildx, podman or buildah\n")
        return 2
    try:
        _make(options, engine)
    except Failed as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
