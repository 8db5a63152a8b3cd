"""The one binary of a sandbox: built once from Go modules, cached under the hash of its sources.

A second build at the same time waits for the first and uses its result. The choice of the Go toolchain is left to
``toolchain``.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import psutil

from topomend.model.quantity import format_bytes
from topomend.sandbox.failures import SandboxUnavailable
from topomend.sandbox.layout import cache_folder
from topomend.sandbox.toolchain import find_go

BINARY = "topomend-sandbox"

REPORT_EVERY = 10.0
"""Seconds between two progress reports of a build."""

BUILD_MEMORY = 2 << 30
"""Bytes of available memory below which linking fails: its peak was 2.3 GiB."""

LEAST_DISK, COLD_DISK = 512 << 20, 4 << 30
"""Bytes of disk for the binary alone, and for a build without anything in Go's cache."""

Progress = Callable[[str], None]


def ensure_binary(on_progress: Progress) -> Path:
    """The path of the binary. Builds it first if this user has none from these sources.

    Raises SandboxUnavailable if the build fails, with the compiler's last line.
    """
    sources = read_sources()
    folder = cache_folder() / "binaries" / cache_key(sources)
    binary = folder / BINARY
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with locked(
        folder / "lock", lambda: on_progress("another build of the sandbox's binary is under way: waiting for it")
    ):
        if not binary.exists():
            _build(sources, folder, on_progress)
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


def kubernetes_version(go_mod: str) -> str:
    """The version of Kubernetes in a go.mod, such as ``v1.36.3``. Raises ValueError if it requires none."""
    matched = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", go_mod, re.MULTILINE)
    if matched is None:
        raise ValueError("go.mod requires no k8s.io/kubernetes")
    return matched[1]


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


def _build(sources: Mapping[str, bytes], folder: Path, on_progress: Progress) -> None:
    check_room(psutil.virtual_memory().available, psutil.disk_usage(str(folder)).free, on_progress)
    version = kubernetes_version(sources["go.mod"].decode())
    go = find_go(re.search(r"^go (\S+)$", sources["go.mod"].decode(), re.MULTILINE)[1], on_progress)  # type: ignore[index]
    source_folder = folder / "source"
    source_folder.mkdir(exist_ok=True)
    for name, content in sources.items():
        (source_folder / name).write_bytes(content)
    environment = {
        **os.environ,
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    if "HOME" not in environment or not os.access(environment["HOME"], os.W_OK):
        environment |= {"GOPATH": str(cache_folder() / "go"), "GOCACHE": str(cache_folder() / "go-build")}
    on_progress(
        f"building Kubernetes {version} for the sandbox, once: about 5 minutes, 20 s where Go has its parts cached"
    )
    _run([str(go), "mod", "download"], source_folder, environment, _Report("downloading Go modules", on_progress))
    total = len(
        _run([str(go), "list", "-deps", "."], source_folder, environment, _Report("reading Go modules", on_progress))
    )
    partial = folder / f"{BINARY}.partial"
    command = [str(go), "build", "-v", "-trimpath", "-ldflags", linker_flags(version), "-o", str(partial), "."]
    _run(command, source_folder, environment, _Report("compiling", on_progress, total))
    partial.chmod(0o755)
    partial.replace(folder / BINARY)
    on_progress(f"built {folder / BINARY}")


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
            self._on_progress(f"{self._stage}: {elapsed // 60}:{elapsed % 60:02d} elapsed{share}")


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
        last = next((line for line in reversed(lines) if line), "no output")
        raise SandboxUnavailable(f"go {command[1]} failed in {folder}: {last[:300]}")
    return lines
