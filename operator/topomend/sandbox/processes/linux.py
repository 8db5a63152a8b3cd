"""The four Linux system calls that the sandbox needs and Python 3.11 does not offer: unshare, setns, mount, prctl.

Each function raises OSError with the call's name. The caller chooses the mounts and has the privileges.
"""

import ctypes
import os
import signal
from pathlib import Path

CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_SHARED = 0x1, 0x20, 0x1000, 0x2000, 0x4000, 0x100000
KEPT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
"""The flags of a mount that a remount must repeat: mount(2) and statvfs(3) have the same bits for them."""
PR_SET_PDEATHSIG = 1


def enter_new_mount_namespace() -> None:
    """Give this process a private copy of its mounts (unshare(2))."""
    _checked("unshare", _libc().unshare(CLONE_NEWNS))


def enter_mount_namespace(descriptor: int) -> None:
    """Enter the mount namespace that ``descriptor`` is open on (setns(2)); root and working directory follow it."""
    _checked("setns", _libc().setns(descriptor, CLONE_NEWNS))


def bind(source: Path, target: Path) -> None:
    """Mount ``source`` with all mounts below it at ``target`` (mount(2), MS_BIND | MS_REC)."""
    result = _libc().mount(bytes(source), bytes(target), None, ctypes.c_ulong(MS_BIND | MS_REC), None)
    _checked(f"bind {source} on {target}", result)


def move(source: Path, target: Path) -> None:
    """Move the mount at ``source`` to ``target`` (mount(2))."""
    result = _libc().mount(bytes(source), bytes(target), None, ctypes.c_ulong(MS_MOVE), None)
    _checked(f"move {source} to {target}", result)


def make_read_only(target: Path) -> None:
    """Make the mount at ``target`` read-only and keep its other flags (mount(2))."""
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | os.statvfs(target).f_flag & KEPT_FLAGS
    result = _libc().mount(None, bytes(target), None, ctypes.c_ulong(flags), None)
    _checked(f"make {target} read-only", result)


def make_shared(target: Path) -> None:
    """Let what is mounted below ``target`` reach the copies of this mount that are made from now on (mount(2))."""
    result = _libc().mount(None, bytes(target), None, ctypes.c_ulong(MS_SHARED | MS_REC), None)
    _checked(f"make {target} shared", result)


def mount_tmpfs(target: Path) -> None:
    """Put an empty file system in memory over ``target`` (mount(2))."""
    result = _libc().mount(b"tmpfs", bytes(target), b"tmpfs", ctypes.c_ulong(0), b"mode=755")
    _checked(f"mount tmpfs on {target}", result)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends (prctl(2)). Exits if that is no longer ``parent``."""
    _checked("prctl", _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        os._exit(1)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(call: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
