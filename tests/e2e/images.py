"""The images of a cluster, as archives that a runtime imports: topomend's own, built from the Dockerfile, and idle's.

Owns which engine builds, what the base is, and where results are kept: in the user's cache folder, named after what
they were made of, so that only what changed is built anew. The Dockerfile's interface to it is the argument PYTHON and
the name ``topomend:VERSION`` that the manifests have.
"""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.manifests import ROOT
from tests.e2e import prerequisites
from tests.e2e.prerequisites import BASE_PACKAGE, BUILDER, BUILDER_PACKAGE, Unavailable

from topomend.sandbox.build import locked
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.toolchain import find_go

Progress = Callable[[str], None]

IDLE = "topomend-e2e.invalid/idle:v1"
"""What sandboxes and workloads run. It is in no registry, and needs none."""

DEBIAN_SUITE = "trixie"
"""The release of Debian that has the Python of the Dockerfile's base, 3.13."""

DEBIAN_PACKAGES = ("python3", "python3-venv", "ca-certificates")
DEBIAN_PYTHON = "3.13"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_POLICY = {"default": [{"type": "insecureAcceptAnything"}]}

OF_THIS_MACHINE = ("/etc/ssl/certs", "/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf")
"""What a step of the build sees of this machine where buildah runs it: how to reach package indexes, and whom to trust.
None of it gets into the image."""

BUILD_SECONDS = 900.0

KEPT_SECONDS = 3600.0
"""How long an archive is kept that nobody asks for, and at least as long as a cluster may take to import it."""

KEPT_IMAGES = 400
"""How many images buildah's storage may hold before it begins anew. Steps count: twenty a build, half a gigabyte."""


def topomend_image(tag: str, on_progress: Progress) -> Path:
    """The archive of the image ``topomend:TAG``, built from the working tree where nobody built the same before.

    Images with different tags differ in their version label alone. Raises Unavailable where it cannot be built.
    """
    builder = find_builder()
    source = _digest(_sources())
    archive = _folder() / f"topomend-{tag}-{source}-{builder.name}.tar"
    with locked(_folder() / "lock", lambda: on_progress("another image is being built: waiting for it")):
        if not archive.exists():
            on_progress(f"building topomend:{tag} with {builder.name}: about 2 minutes the first time")
            _remove_unused()
            builder.build(tag, archive, on_progress)
        archive.touch()
    return archive


def idle_image(on_progress: Progress) -> Path:
    """The archive of the image IDLE, which holds one program without libraries."""
    source = Path(__file__).with_name("idle")
    files = sorted(source.iterdir())
    archive = _folder() / f"idle-{_digest(files)}.tar"
    if not archive.exists():
        on_progress("building the image of idle pods")
        minimum = re.search(r"^go (\S+)$", (source / "go.mod").read_text(), re.MULTILINE)
        assert minimum is not None
        with tempfile.TemporaryDirectory(dir=_folder()) as folder:
            program, partial = Path(folder, "idle"), Path(folder, "archive")
            go = find_go(minimum[1], on_progress)
            _run(
                [str(go), "build", "-trimpath", "-ldflags=-s -w", "-o", str(program), "."], cwd=source, CGO_ENABLED="0"
            )
            partial.write_bytes(archive_of(IDLE, "idle", program.read_bytes()))
            partial.replace(archive)
    return archive


def archive_of(reference: str, name: str, program: bytes) -> bytes:
    """An image that holds one file, its entry point, in the format of ``docker save``."""
    layer = _tar({name: program})
    configuration = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "config.json": json.dumps(configuration).encode(),
            "layer.tar": layer,
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


def find_builder() -> "Builder":
    """The first of docker and podman that answers, else buildah. Raises Unavailable where there is none."""
    if (engine := prerequisites.engine()) is not None:
        return Engine(engine)
    if shutil.which(BUILDER):
        return Buildah(_folder() / "storage")
    raise Unavailable(f"nothing can build the image: apt-get install --no-install-recommends {BUILDER_PACKAGE}")


@dataclass(frozen=True)
class Engine:
    """docker or podman, which pull the base themselves."""

    name: str

    def build(self, tag: str, archive: Path, _: Progress) -> None:
        """Build from the working tree, and write the archive."""
        reference = _whole_name(tag)
        _run([self.name, "build", "--label", _version_label(tag), "--tag", reference, "."], cwd=ROOT)
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        _run([self.name, "save", "--output", str(partial), reference])
        partial.replace(archive)


@dataclass(frozen=True)
class Buildah:
    """Debian's buildah as root, with a storage of its own, where no engine runs: steps run in a chroot."""

    storage: Path
    name: str = "buildah"

    def build(self, tag: str, archive: Path, on_progress: Progress) -> None:
        """Build from the working tree on the base that can be had, and write the archive."""
        if len(self._buildah("images", "--all", "--quiet").split()) > KEPT_IMAGES:
            self._buildah("rmi", "--all", "--force")
        base = self._base(on_progress)
        views = [f"--volume={path}:{path}:ro" for path in OF_THIS_MACHINE if Path(path).exists()]
        reference = f"localhost/topomend:{tag}"
        flags = [*self._policy(), "--layers", "--network=host", "--pull-never", f"--build-arg=PYTHON={base}", *views]
        self._buildah(
            "bud", "--isolation=chroot", *flags, f"--label={_version_label(tag)}", f"--tag={reference}", ".", cwd=ROOT
        )
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        self._buildah("push", *self._policy(), reference, f"docker-archive:{partial}:{_whole_name(tag)}")
        partial.replace(archive)

    def _base(self, on_progress: Progress) -> str:
        """The name of the base: the Dockerfile's own, pulled, else one that is made of Debian's packages."""
        wanted = re.search(r"^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        assert wanted is not None
        whole = wanted[1] if "/" in wanted[1] else f"docker.io/library/{wanted[1]}"
        if self._has(whole):
            return whole
        own = f"localhost/topomend-base:{_digest_of([*DEBIAN_PACKAGES, DEBIAN_SUITE, *map(str, _apt_files())])}"
        if self._has(own):
            return own
        on_progress(f"pulling {whole}")
        try:
            self._buildah("pull", "--quiet", *self._policy(), whole, seconds=120)
        except Unavailable as error:
            on_progress(f"it cannot be had ({str(error)[-160:]}): making a base of Debian's packages")
        else:
            return whole
        self._make_base(own)
        return own

    def _make_base(self, reference: str) -> None:
        """Debian's own Python with the command ``python``, and the sources of packages that this machine has."""
        if shutil.which("mmdebstrap") is None:
            raise Unavailable(f"no base can be made: apt-get install --no-install-recommends {BASE_PACKAGE}")
        with tempfile.TemporaryDirectory(dir=_folder()) as folder:
            root = Path(folder, "base.tar")
            setup = [f"--customize-hook=copy-in {path} {path.parent}" for path in _apt_files()]
            link = "--customize-hook=ln -s python3 $1/usr/bin/python"
            include = f"--include={','.join(DEBIAN_PACKAGES)}"
            _run(["mmdebstrap", "--variant=minbase", include, link, *setup, DEBIAN_SUITE, str(root)])
            container = self._buildah("from", *self._policy(), "scratch").strip()
            self._buildah("add", container, str(root), "/")
            self._buildah("commit", *self._policy(), "--rm", container, reference)

    def _has(self, reference: str) -> bool:
        return _succeeds([*self._program(), "inspect", "--type=image", reference])

    def _buildah(self, *arguments: str, cwd: Path | None = None, seconds: float = BUILD_SECONDS) -> str:
        return _run([*self._program(), *arguments], cwd=cwd, seconds=seconds)

    def _program(self) -> Sequence[str]:
        root, state = self.storage / _driver(self.storage), self.storage / "run"
        return ["buildah", f"--root={root}", f"--runroot={state}", f"--storage-driver={_driver(self.storage)}"]

    def _policy(self) -> Sequence[str]:
        """Where Debian's buildah is installed without what it recommends, no file says whose images are trusted."""
        policy = self.storage / "policy.json"
        policy.write_text(json.dumps(_POLICY))
        return ("--signature-policy", str(policy))


Builder = Engine | Buildah


def _driver(folder: Path) -> str:
    """overlay, but where its files lie on one themselves (``vfs`` copies each layer whole)."""
    for name in ("lower", "upper", "work", "merged"):
        (folder / "trial" / name).mkdir(parents=True, exist_ok=True)
    options = ",".join(f"{name}dir={folder / 'trial' / name}" for name in ("lower", "upper", "work"))
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(folder / "trial" / "merged")]
    return "overlay" if _succeeds(["unshare", "--mount", *mount]) else "vfs"


def _apt_files() -> list[Path]:
    """How this machine's apt reaches its mirrors, where it was told."""
    return [path for path in sorted(Path("/etc/apt/apt.conf.d").glob("*")) if "Acquire::" in path.read_text()]


def _whole_name(tag: str) -> str:
    """What a runtime makes of the short name in the manifests."""
    return f"docker.io/library/topomend:{tag}"


def _version_label(tag: str) -> str:
    return f"org.opencontainers.image.version={tag}"


def _sources() -> Iterator[Path]:
    """What the image is made of: the recipe, and what .dockerignore lets through."""
    yield from (ROOT / "Dockerfile", ROOT / ".dockerignore")
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            path = ROOT / line.removeprefix("!")
            yield from sorted(path.rglob("*")) if path.is_dir() else (path,)


def _digest(paths: Iterable[Path]) -> str:
    files = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    return _digest_of(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files)


def _digest_of(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _remove_unused() -> None:
    """Remove the archives that no cluster was started with lately: each has half a gigabyte."""
    for path in _folder().glob("topomend-*.tar"):
        if path.stat().st_mtime < time.time() - KEPT_SECONDS:
            path.unlink()


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _folder() -> Path:
    folder = cache_folder() / "e2e" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _succeeds(argv: Sequence[str]) -> bool:
    try:
        _run(argv, seconds=60)
    except Unavailable:
        return False
    return True


def _run(argv: Sequence[str], *, cwd: Path | None = None, seconds: float = BUILD_SECONDS, **environment: str) -> str:
    """What a command printed. Raises Unavailable with its last words."""
    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{' '.join(argv)} took longer than {seconds:.0f} s") from error
    if done.returncode:
        raise Unavailable(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()[-1500:]}")
    return done.stdout
