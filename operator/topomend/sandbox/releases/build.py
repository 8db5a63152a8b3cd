"""The binaries of a sandbox: each built once from Go modules, cached under the hash of its sources.

The binary of the default release has every program of a sandbox; that of another release has the programs of Kubernetes
alone. A second build at the same time waits for the first and uses its result. The choice of the Go toolchain is left
to ``toolchain``, the requirements of another release to ``go_modules``.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import psutil

from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.model.quantity import format_bytes
from topomend.sandbox.failures import SandboxUnavailable
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.releases import go_modules, toolchain

BINARY = "topomend-sandbox"

REPORT_EVERY = 10.0
"""Seconds between two progress reports of a build."""

BUILD_MEMORY = 2 << 30
"""Bytes of available memory below which linking fails: its peak was 2.3 GiB."""

LEAST_DISK, COLD_DISK = 512 << 20, 4 << 30
"""Bytes of disk for the binary alone, and for a build without anything in Go's cache."""

Progress = Callable[[str], None]


KUBERNETES_SOURCES = frozenset({"main.go", "kubelet.go", "kubelet_before134.go"})
"""The files of the binary of another release: it has no go.mod of ours, and no program beside those of Kubernetes."""


def ensure_binary(on_progress: Progress, version: str = DEFAULT_VERSION) -> Path:
    """The path of the binary of the release ``version``. Builds it first if this user has none from these sources.

    Raises NotARelease, and SandboxUnavailable if the build fails, with the last line of its output.
    """
    minor = go_modules.minor_of(version)
    sources = read_sources()
    if version == DEFAULT_VERSION:
        folder = cache_folder() / "binaries" / cache_key(sources)
    else:
        sources = {name: content for name, content in sources.items() if name in KUBERNETES_SOURCES}
        folder = cache_folder() / "binaries" / cache_key({**sources, "version": version.encode()})
    binary = folder / BINARY
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with locked(
        folder / "lock", lambda: on_progress("another build of the sandbox's binary is under way: waiting for it")
    ):
        if not binary.exists():
            _Build(folder, version, minor, on_progress).run(sources)
    return binary


def read_sources() -> Mapping[str, bytes]:
    """The files of the Go module in this package: name -> content."""
    folder = resources.files("topomend.sandbox") / "binary"
    return {
        entry.name: entry.read_bytes()
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".go") or entry.name in {"go.mod", "go.sum"}
    }


def cache_key(sources: Mapping[str, bytes]) -> str:
    """A hash of the sources, 24 hexadecimal digits."""
    digest = hashlib.sha256()
    for name, content in sorted(sources.items()):
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:24]


def linker_flags(version: str) -> str:
    """Linker flags that strip symbols and set ``version``: built outside its own tree, Kubernetes reports v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X {package}.{name}={value}" for name, value in values.items())])


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on the file ``path``; ``on_wait`` is called once if another process has it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_room(memory: int, disk: int, on_progress: Progress) -> None:
    """Raise SandboxUnavailable if a build would fail after minutes for lack of ``memory`` or ``disk``, in bytes."""
    if memory < BUILD_MEMORY:
        raise SandboxUnavailable(
            f"building the sandbox needs at least {format_bytes(BUILD_MEMORY)} of memory, but only "
            f"{format_bytes(memory)} are available: stop other programs and try again"
        )
    if disk < LEAST_DISK:
        raise SandboxUnavailable(
            f"building the sandbox needs at least {format_bytes(LEAST_DISK)} of disk, but only {format_bytes(disk)} "
            f"are free at {cache_folder()}: free some there, or name another folder with XDG_CACHE_HOME"
        )
    if disk < COLD_DISK:
        on_progress(f"{format_bytes(disk)} of disk are free: a first build takes about {format_bytes(COLD_DISK)}")


class _Build:
    """One build, in ``folder``."""

    def __init__(self, folder: Path, version: str, minor: int, on_progress: Progress) -> None:
        check_room(psutil.virtual_memory().available, psutil.disk_usage(str(folder)).free, on_progress)
        self._folder, self._version, self._minor, self._on_progress = folder, version, minor, on_progress
        self._what = f"building Kubernetes {version} once"
        self._is_default = version == DEFAULT_VERSION
        self._least_go = re.search(r"^go (\S+)$", read_sources()["go.mod"].decode(), re.MULTILINE)[1]  # type: ignore[index]
        self._go = toolchain.find_go(self._least_go, on_progress)
        self._sources = folder / "source"
        self._environment = {**os.environ, **toolchain.environment()}
        self._environment |= {"GOFLAGS": "-mod=readonly"} if self._is_default else go_modules.ENVIRONMENT
        if "HOME" not in self._environment or not os.access(self._environment["HOME"], os.W_OK):
            self._environment |= {"GOPATH": str(cache_folder() / "go"), "GOCACHE": str(cache_folder() / "go-build")}

    def run(self, sources: Mapping[str, bytes]) -> None:
        """Build the binary of ``sources``. Raises SandboxUnavailable."""
        self._sources.mkdir(exist_ok=True)
        for name, content in sources.items():
            (self._sources / name).write_bytes(content)
        self._on_progress(
            f"{self._what}: about 5 minutes, 20 s where Go has its parts cached; Ctrl-C ends it, and the next up goes "
            "on from there"
        )
        tags = "-tags=before134" if self._minor < 34 else "-tags="
        if self._is_default:
            self._report("downloading Go modules", "mod", "download")
        else:
            go_modules.write_go_mod(self._sources, "topomend.io/sandbox", self._least_go, self._version, self._output)
        total = len(self._report("reading Go modules", "list", "-deps", tags, "."))
        partial = self._folder / f"{BINARY}.partial"
        options = (tags, "-trimpath", "-ldflags", linker_flags(self._version), "-o", str(partial))
        self._report("compiling", "build", "-v", *options, ".", total=total)
        partial.chmod(0o755)
        partial.replace(self._folder / BINARY)
        self._on_progress(f"built {self._folder / BINARY}")

    def _report(self, stage: str, *arguments: str, total: int = 0) -> list[str]:
        """Run Go, and report its progress."""
        report = _Report(f"{self._what} (about 5 minutes, Ctrl-C ends it): {stage}", self._on_progress, total)
        return _run([str(self._go), *arguments], self._sources, self._environment, report)

    def _output(self, *arguments: str) -> str:
        """What Go prints to its standard output."""
        done = toolchain.run_go(self._go, self._sources, self._environment, *arguments)
        if done.returncode:
            raise _failure(arguments[0], self._sources, (done.stdout + done.stderr).splitlines())
        return done.stdout


class _Report:
    """Reports every few seconds the stage, the elapsed time and the progress."""

    def __init__(self, stage: str, on_progress: Progress, total: int = 0) -> None:
        self.lines = 0
        self._stage, self._on_progress, self._total = stage, on_progress, total
        self._start = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "_Report":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(REPORT_EVERY):
            elapsed = int(time.monotonic() - self._start)
            share = f", {self.lines} of at most {self._total} packages" if self._total and self.lines else ""
            self._on_progress(f"{self._stage} {elapsed // 60}:{elapsed % 60:02d}{share}")


def _run(command: list[str], folder: Path, environment: Mapping[str, str], report: _Report) -> list[str]:
    """Run a Go command; its lines of output, counted in ``report``. Raises SandboxUnavailable with its last line."""
    lines: list[str] = []
    with (
        report,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - Popen was given a pipe above
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                report.lines += 1
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failure(command[1], folder, lines)
    return lines


def _failure(command: str, folder: Path, lines: Sequence[str]) -> SandboxUnavailable:
    """Why Go failed. The proxy withholds parts of some patch releases: these its user can avoid."""
    withheld = next((line for line in lines if "not available" in line or "unknown revision" in line), "")
    if withheld:
        return SandboxUnavailable(
            f"this release of Kubernetes cannot be had from the Go module proxy; try another patch release of the same "
            f"minor version: {withheld.strip()[:300]}"
        )
    last = next((line for line in reversed(lines) if line), "no output")
    return SandboxUnavailable(f"go {command} failed in {folder}: {last[:300]}")
