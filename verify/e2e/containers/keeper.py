"""Keeps a cluster's namespaces from outside, and afterwards removes their cgroups and files from the machine.

It is a process of its own, so that all is removed as well where the one who wanted the cluster is killed: both ends of
its life come by its standard input, which it shares with the first process inside (``init``). Who kills this one too
leaves an unlocked folder, which the next cluster removes (``remove_abandoned``).
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
from verify.e2e.containers.cgroups import GroupTree

from topomend.sandbox.layout import cache_folder, remove_tree
from topomend.sandbox.processes import linux

NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc")

REMOVAL_SECONDS = 300.0
"""Each node leaves the files of its images, some thousands."""


def runs_folder() -> Path:
    """The folder of all clusters' files; each cluster has a folder with the name of its cgroup."""
    return cache_folder() / "e2e" / "runs"


class Keeper:
    """A running keeper; ``pid`` is the first process in the namespaces, by its id on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verify.e2e.containers.keeper", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # Ctrl-C is for the process that started the cluster
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.end()
            raise RuntimeError("the namespaces could not be made: see above")
        self.pid = int(line)

    def end(self) -> None:
        """Stop everything inside, and wait until nothing is left."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        if self._process.wait(timeout=REMOVAL_SECONDS):
            raise RuntimeError("what the cluster left could not be removed: see above")


def remove_abandoned() -> None:
    """Remove the cgroups and files of keepers that were killed."""
    for lock in runs_folder().glob("*.lock"):
        with _locked(lock) as own:
            if own:
                _remove(lock.with_suffix(""))
                lock.unlink(missing_ok=True)


def main(folder: Path) -> None:
    """Keep the namespaces of the cluster in ``folder`` until standard input ends."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    lock = folder.with_suffix(".lock")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(lock) as own:
        if not own:
            sys.exit(f"{folder} is another cluster's")
        folder.mkdir(mode=0o700)
        try:
            GroupTree(folder.name).create()
            _hold()
        finally:
            _remove(folder)
            lock.unlink(missing_ok=True)


def _hold() -> None:
    argv = ["unshare", *NAMESPACES, "--propagation", "private", "--", sys.executable, "-I"]
    init = Path(__file__).with_name("init.py")
    dies_with_this_one = partial(linux.die_with_parent, os.getpid())
    with subprocess.Popen([*argv, str(init)], stdout=subprocess.PIPE, preexec_fn=dies_with_this_one) as process:  # noqa: PLW1509 - one thread
        try:
            assert process.stdout is not None
            if process.stdout.readline():
                (first,) = psutil.Process(process.pid).children()
                print(first.pid, flush=True)
            process.wait()
        finally:
            process.kill()


def _remove(folder: Path) -> None:
    GroupTree(folder.name).remove()
    remove_tree(folder)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Try to lock the file during the block; yields whether that succeeded."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
