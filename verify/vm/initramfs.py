"""The initramfs that the kernel starts from: it loads kernel modules and switches to the disk."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from verify.vm.parts import Parts

MODULES = ("virtio_pci", "virtio_blk", "virtio_net", "overlay", "bridge", "veth")
"""The kernel modules of the disk, of the network card, and of containers. Others are built in or not needed."""

COMMANDS = ("cat", "insmod", "mount", "sh", "switch_root", "umount")

INIT = """#!/bin/sh -e
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
mount -t ext4 /dev/vda /disk
umount /dev
exec switch_root /disk {command}
"""


def write_initramfs(place: Path, staging: Path, parts: Parts, command: str) -> None:
    """Write the initramfs. ``staging`` is an empty folder; ``command`` is the disk's first process, as a shell has it.

    Containers need the disk: the kernel refuses pivot_root(2) where an initramfs is the root.
    """
    for folder in ("bin", "dev", "disk"):
        (staging / folder).mkdir()
    shutil.copy2(parts.busybox, staging / "bin" / "busybox")
    for name in COMMANDS:
        (staging / "bin" / name).symlink_to("busybox")
    _stage_modules(staging / "modules", parts.modules)
    init = staging / "init"
    init.write_text(INIT.format(command=command))
    init.chmod(0o755)
    with place.open("wb") as archive:
        _write_cpio(archive, staging)


def _stage_modules(folder: Path, modules: Mapping[str, Path]) -> None:
    """The modules and their dependencies, in the order in which they can be loaded."""
    folder.mkdir()
    order: list[str] = []

    def add(name: str) -> None:
        module = modules[name]
        depends = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
        for needed in depends[1].decode().split(",") if depends and depends[1] else ():
            add(needed.replace("-", "_"))
        if name not in order:
            order.append(name)
            shutil.copy2(module, folder / name)

    for name in MODULES:
        add(name)
    (folder / "order").write_text(" ".join(order))


def _write_cpio(archive: BinaryIO, root: Path) -> None:
    """All of ``root`` as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst: newc)."""
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        _write_entry(archive, str(path.relative_to(root)), _content(path), status.st_mode, int(status.st_mtime))
    _write_entry(archive, "TRAILER!!!", b"")


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.is_file() else b""


def _write_entry(archive: BinaryIO, name: str, content: bytes, mode: int = 0, mtime: int = 0) -> None:
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, mtime, len(content), 0, 0, 0, 0, len(encoded), 0)
    archive.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
    archive.write(b"\0" * (-(110 + len(encoded)) % 4))
    archive.write(content + b"\0" * (-len(content) % 4))
