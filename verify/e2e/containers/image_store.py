"""The folder of a node's containerd, with its images unpacked: made once, and given to each node by links.

An image has thousands of files. Unpacked for each node, they are written and removed again that often, which took most
of the start and the end of a cluster, above all where the disk is told of each freed block (mount option ``discard``).
containerd changes none of them but its databases.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.waiting import eventually
from tools.commands import run
from verify.e2e import images
from verify.e2e.containers.programs import Space

from topomend.sandbox.releases.build import locked

START_SECONDS = 60.0
STOP_SECONDS = 60.0


def unpacked(archives: Sequence[Path], snapshotter: str, space: Space) -> Path:
    """The folder for these archives, which a containerd in ``space`` makes unless the cache has it. Raises Failed."""
    folder = images.unpacked_folder(archives, [snapshotter, space.run("containerd", "--version")])
    with locked(folder.with_suffix(".lock"), lambda: None):
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            _unpack(archives, snapshotter, space, partial)
            partial.rename(folder)
        os.utime(folder)
    return folder


def give(store: Path, root: Path) -> None:
    """Make ``root`` a containerd's folder like ``store``. Its databases are its own."""
    run("cp", "--archive", "--link", str(store), str(root))
    for database in root.glob("*/*.db"):
        own = database.with_suffix(".own")
        shutil.copy2(database, own)
        own.replace(database)


def _unpack(archives: Sequence[Path], snapshotter: str, space: Space, root: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="containerd-") as state:  # a socket's path may have 107 bytes
        socket, config = Path(state, "containerd.sock"), Path(state, "config.toml")
        config.write_text(_config(root, Path(state), socket))
        log = Path(state, "log")
        containerd = space.start("containerd that unpacks", ["containerd", "--config", str(config)], log)
        ctr = ("ctr", "--address", str(socket), "--namespace", "k8s.io")

        def answers() -> bool:
            containerd.check()
            return space.attempt(*ctr, "version").returncode == 0

        eventually("the containerd that unpacks", answers, START_SECONDS)
        for archive in archives:
            space.feed(archive, *ctr, "images", "import", "--snapshotter", snapshotter, "-")
        containerd.signal(signal.SIGTERM)
        containerd.wait(STOP_SECONDS)


def _config(root: Path, state: Path, socket: Path) -> str:
    """containerd's configuration: no kubelet asks it for anything."""
    return f"""version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
"""
