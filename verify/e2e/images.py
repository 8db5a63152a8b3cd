"""The images of a cluster, as archives that a container runtime imports: topomend's own and the one of idle pods.

Owns the base that is used where no registry can be reached, buildah's storage, and the cache of archives in the user's
cache folder, named after a digest of their sources. ``deploy/image/build.py`` builds topomend's image.
"""

import hashlib
import io
import json
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploy.image import build
from deploy.manifests import ROOT
from tools.commands import Unavailable, run, succeeds
from verify.e2e.prerequisites import BASE_PACKAGE, BUILDER_PACKAGE

from topomend.sandbox.layout import cache_folder, remove_tree
from topomend.sandbox.releases.build import locked
from topomend.sandbox.releases.toolchain import find_go

Progress = Callable[[str], None]

IDLE = "topomend-e2e.invalid/idle:v1"
"""The image of pod sandboxes and workloads. It comes from no registry."""

DEBIAN_SUITE = "trixie"
"""The release of Debian that has the Python of the Dockerfile's base, 3.13."""

MAKING_SECONDS = 3600.0
"""The most that a base takes: a minute, or a quarter of an hour for a foreign processor, which QEMU emulates."""

DEBIAN_PACKAGES = ("python3", "python3-venv", "ca-certificates")

WORKING_TREE = build.Commit("working-tree", 1_600_000_000)
"""The same for every build, so that a digest of the sources identifies an image. git is not asked."""

_POLICY = {"default": [{"type": "insecureAcceptAnything"}]}

MACHINE_FILES = ("/etc/ssl/certs", "/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf")
"""The files of this machine that buildah's steps see: how to reach package indexes, and which authorities to trust. The
image contains none of them."""

KEPT_SECONDS = 3600.0
"""How long an unused archive is kept: longer than any cluster takes to import it."""

MAX_STORED_IMAGES = 400
"""How many images buildah's storage may contain before it is emptied. A build adds twenty, half a gigabyte."""


class NoSuchCommit(Exception):
    """The history of this clone does not reach back to a commit."""


def checkout(commit: str) -> Path:
    """A folder with the files of an earlier ``commit``. Raises NoSuchCommit."""
    folder = _folder() / f"checkout-{commit}"
    if folder.exists():
        return folder
    if not succeeds("git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"):
        raise NoSuchCommit(f"this clone does not have commit {commit[:12]}: git fetch --unshallow")
    with tempfile.TemporaryDirectory(dir=_folder()) as place:
        archive, files = Path(place, "files.tar"), Path(place, "files")
        run("git", "-C", str(ROOT), "archive", f"--output={archive}", commit)
        with tarfile.open(archive) as content:
            content.extractall(files, filter="data")
        files.rename(folder)
    return folder


def topomend_image(tag: str, on_progress: Progress, root: Path = ROOT) -> Path:
    """The archive of the image ``topomend:TAG``, built from the files in ``root`` unless the cache has it.

    Images with different tags differ in their version label alone. Raises Unavailable if it cannot be built.
    """
    engine = find_engine()
    archive = _folder() / f"topomend-{tag}-{_digest(_sources(root))}-{engine.name}.tar"
    with locked(_folder() / "lock", lambda: on_progress("waiting for another build of the image")):
        if not archive.exists():
            on_progress(f"building topomend:{tag} with {engine.name}: about 2 minutes the first time")
            _remove_unused()
            _build(engine, tag, archive, on_progress, root)
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
            command = [str(go), "build", "-trimpath", "-ldflags=-s -w", "-o", str(program), "."]
            run(*command, folder=source, CGO_ENABLED="0")
            partial.write_bytes(archive_of(IDLE, "idle", program.read_bytes()))
            partial.replace(archive)
    return archive


def unpacked_folder(archives: Iterable[Path], made_by: Sequence[str]) -> Path:
    """Where these archives are kept unpacked by the programs that the words ``made_by`` tell."""
    return _folder() / f"unpacked-{_digest_of([*(archive.name for archive in archives), *made_by])}"


def archive_of(reference: str, name: str, program: bytes) -> bytes:
    """An image that holds one file, its entry point, in the format of ``docker save``."""
    layer = _tar({name: program})
    configuration = {
        "architecture": build.native(),
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


def find_engine() -> build.Engine:
    """The engine that builds the image. Raises Unavailable if this machine has none."""
    engine = build.find_engine()
    if engine is None:
        raise Unavailable(f"nothing can build the image: apt-get install --no-install-recommends {BUILDER_PACKAGE}")
    return engine


def _build(engine: build.Engine, tag: str, archive: Path, on_progress: Progress, root: Path) -> None:
    inputs = build.Inputs(WORKING_TREE, version=tag, flags=("--quiet",), folder=root)
    if engine.name == "buildah":
        storage = Storage.at(_folder() / "storage")
        engine = storage.engine
        inputs = replace(inputs, base=storage.base(on_progress), flags=(*inputs.flags, *storage.build_flags()))
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    # A runtime expands the short name in the manifests to this one.
    reference = f"docker.io/library/topomend:{tag}"
    try:
        build.build(engine, reference, partial, inputs)
    except build.Failed as failure:
        raise Unavailable(str(failure)) from failure
    partial.replace(archive)


@dataclass(frozen=True)
class Storage:
    """A storage of buildah's own, for root on a machine without a container engine. Build steps run in a chroot."""

    engine: build.Engine

    @classmethod
    def at(cls, folder: Path) -> "Storage":
        """The storage in ``folder``; emptied first if it has grown too large."""
        folder.mkdir(parents=True, exist_ok=True)
        # Debian's buildah, installed without its recommended packages, has no file that says whose images it trusts.
        policy = folder / "policy.json"
        policy.write_text(json.dumps(_POLICY))
        driver = _driver(folder)
        options = (f"--root={folder / driver}", f"--runroot={folder / 'run'}", f"--storage-driver={driver}")
        storage = cls(build.Engine("buildah", options, (f"--signature-policy={policy}",)))
        if len(storage._run("images", "--all", "--quiet").split()) > MAX_STORED_IMAGES:
            storage._run("rmi", "--all", "--force")
        return storage

    def build_flags(self) -> list[str]:
        """Flags of a build with cached steps, which reaches package indexes as this machine does."""
        volumes = [f"--volume={path}:{path}:ro" for path in MACHINE_FILES if Path(path).exists()]
        return ["--isolation=chroot", "--layers", "--network=host", "--pull-never", *volumes]

    def base(self, on_progress: Progress, architecture: str = "") -> str:
        """The name of the base: the Dockerfile's own, pulled, or one made of Debian's packages.

        ``architecture`` is Go's and Debian's name of a processor, by default this machine's. QEMU runs a foreign one's.
        """
        of_machine = ["--arch", architecture] if architecture else []
        declared = re.search(r"^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
        assert declared is not None
        official = declared[1] if "/" in declared[1] else f"docker.io/library/{declared[1]}"
        made_of = [*DEBIAN_PACKAGES, DEBIAN_SUITE, *map(str, _apt_files()), *of_machine]
        debian = f"localhost/topomend-base:{_digest_of(made_of)}"
        pulled = f"localhost/topomend-base:{_digest_of([official, architecture])}" if architecture else official
        for stored in (pulled, debian):
            if self._has(stored):
                return stored
        on_progress(f"pulling {official}")
        try:
            self._run("pull", *self.engine.flags, *of_machine, "--quiet", official, seconds=120)
        except Unavailable as error:
            on_progress(f"cannot pull it ({str(error)[-160:]}): making a base of Debian's packages")
        else:
            if architecture:
                # A pulled name is of the processor that was pulled last.
                self._run("tag", official, pulled)
                self._run("rmi", official)
            return pulled
        self._make_base(debian, architecture)
        return debian

    def base_of_all(self, on_progress: Progress, architectures: Iterable[str]) -> str:
        """The name of a base that has this machine's processor, which builds, and all of these."""
        native = build.native()
        # The native one last: a foreign one that is pulled takes its name.
        foreign = [self.base(on_progress, each) for each in architectures if each != native]
        bases = [*foreign, self.base(on_progress)]
        if not foreign:
            return bases[0]
        index = f"localhost/topomend-base:{_digest_of(bases)}"
        # Its bases may have been made anew.
        succeeds("buildah", *self.engine.options, "manifest", "rm", index)
        self._run("manifest", "create", index, *bases)
        return index

    def _make_base(self, reference: str, architecture: str) -> None:
        """Debian's own Python with the command ``python``, and this machine's package sources."""
        if shutil.which("mmdebstrap") is None:
            raise Unavailable(f"no base can be made: apt-get install --no-install-recommends {BASE_PACKAGE}")
        with tempfile.TemporaryDirectory(dir=_folder()) as folder:
            root = Path(folder, "base.tar")
            setup = [f"--customize-hook=copy-in {path} {path.parent}" for path in _apt_files()]
            link = "--customize-hook=ln -s python3 $1/usr/bin/python"
            include = f"--include={','.join(DEBIAN_PACKAGES)}"
            foreign = [f"--architectures={architecture}"] if architecture else []
            run(
                "mmdebstrap",
                *foreign,
                "--variant=minbase",
                include,
                link,
                *setup,
                DEBIAN_SUITE,
                str(root),
                seconds=MAKING_SECONDS,
            )
            container = self._run("from", *self.engine.flags, "scratch").strip()
            if architecture:
                self._run("config", f"--arch={architecture}", container)
            self._run("add", container, str(root), "/")
            self._run("commit", *self.engine.flags, "--rm", container, reference)

    def _has(self, reference: str) -> bool:
        return succeeds("buildah", *self.engine.options, "inspect", "--type=image", reference)

    def _run(self, *arguments: str, seconds: float = 900.0) -> str:
        return run("buildah", *self.engine.options, *arguments, seconds=seconds)


def _driver(folder: Path) -> str:
    """The storage driver: overlay, or vfs, which copies each layer whole, where ``folder`` is on an overlay itself."""
    for name in ("lower", "upper", "work", "merged"):
        (folder / "trial" / name).mkdir(parents=True, exist_ok=True)
    options = ",".join(f"{name}dir={folder / 'trial' / name}" for name in ("lower", "upper", "work"))
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(folder / "trial" / "merged")]
    return "overlay" if succeeds("unshare", "--mount", *mount) else "vfs"


def _apt_files() -> list[Path]:
    """The files that say how this machine's apt reaches its mirrors."""
    return [path for path in sorted(Path("/etc/apt/apt.conf.d").glob("*")) if "Acquire::" in path.read_text()]


def _sources(root: Path) -> Iterator[Path]:
    """What the image is made of: the recipe, its builder, and the files that .dockerignore lets through."""
    yield from (root / "Dockerfile", root / ".dockerignore", root / "deploy" / "image" / "build.py")
    for line in (root / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            path = root / line.removeprefix("!")
            yield from sorted(path.rglob("*")) if path.is_dir() else (path,)


def _digest(paths: Iterable[Path]) -> str:
    files = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    return _digest_of(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files)


def _digest_of(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def _remove_unused() -> None:
    """Remove the archives that no cluster has used lately, and what was unpacked: each has a quarter of a gigabyte."""
    for path in (*_folder().glob("topomend-*.tar"), *_folder().glob("unpacked-*")):
        if path.stat().st_mtime < time.time() - KEPT_SECONDS:
            remove_tree(path) if path.is_dir() else path.unlink()


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
