"""Collects the logs of all containers of a cluster: a kubelet removes a pod's logs with the pod.

Files are opened as soon as they exist and read on request, so a file that was removed meanwhile is still complete.
"""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

LOOK_EVERY = 0.2
"""Seconds between two searches for new files: no container of the tests has a shorter life."""

_PATH = re.compile(
    r"nodes/(?P<node>[^/]+)/var/log/pods/(?P<namespace>[^/_]+)_(?P<pod>[^/_]+)_(?P<uid>[^/]+)/(?P<container>[^/]+)/(?P<life>\d+)\.log$"
)


@dataclass(frozen=True)
class ContainerLog:
    """One run of a container, ``life`` counted from 0, and its lines."""

    node: str
    namespace: str
    pod: str
    container: str
    life: int
    lines: Sequence[str]


class LogCollector:
    """The logs of every container that a cluster whose files are in ``folder`` ever ran."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, BinaryIO] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="logs", daemon=True)
        self._thread.start()

    def read(self, namespace: str) -> list[ContainerLog]:
        """All runs of all containers in a namespace that wrote something."""
        self._open_new()
        logs = []
        with self._lock:
            for path, file in sorted(self._files.items()):
                matched = _PATH.search(str(path))
                if matched is None or matched["namespace"] != namespace:
                    continue
                file.seek(0)
                lines = [_content(line) for line in file.read().decode(errors="replace").splitlines()]
                logs.append(
                    ContainerLog(
                        matched["node"], namespace, matched["pod"], matched["container"], int(matched["life"]), lines
                    )
                )
        return logs

    def write(self, folder: Path) -> None:
        """Write all logs to files in ``folder``."""
        with self._lock:
            for path, file in self._files.items():
                matched = _PATH.search(str(path))
                if matched is not None:
                    file.seek(0)
                    name = "_".join((matched["namespace"], matched["pod"], matched["container"], matched["life"]))
                    (folder / f"{name}.log").write_bytes(file.read())

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def end(self) -> None:
        """Stop collecting."""
        self._over.set()
        self._thread.join()
        self._open_new()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self._open_new()

    def _open_new(self) -> None:
        with self._lock:
            for path in self._present():
                if path not in self._files:
                    try:
                        self._files[path] = path.open("rb")
                    except FileNotFoundError:  # removed since
                        continue

    def _present(self) -> Iterator[Path]:
        """The log files. Kubelets remove folders meanwhile, which os.walk tolerates and Path.glob does not."""
        for pods in self._folder.glob("nodes/*/var/log/pods"):
            for folder, _, names in os.walk(pods):
                yield from (Path(folder, name) for name in names if name.endswith(".log"))


def _content(line: str) -> str:
    """A line without the runtime's prefix: time, stream, and whether the line is complete."""
    return line.split(" ", 3)[-1]
