"""Programs of another processor: QEMU runs them, once the kernel knows which files are whose (binfmt_misc).

Registers QEMU for the time of a run where nobody else has, and takes it back.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.image.build import native
from deploy.release.images import BINFMT, runs
from tools.commands import Unavailable, run

PACKAGES = "qemu-user-static arch-test"
"""Debian's; mmdebstrap asks arch-test whether the machine can run an architecture."""

NAME = "topomend-aarch64"

INTERPRETER = "/usr/bin/qemu-aarch64-static"

MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
"""64-bit little-endian ELF files, executable or shared, of machine 183: elf.h EM_AARCH64."""


@contextmanager
def programs_run(architectures: tuple[str, ...]) -> Iterator[None]:
    """Have the kernel run these architectures' programs inside. Raises Unavailable with what to install."""
    if "arm64" not in architectures or native() == "arm64":
        yield
        return
    if shutil.which("arch-test") is None or not Path(INTERPRETER).exists():
        raise Unavailable(f"arm64 needs QEMU: apt-get install --no-install-recommends {PACKAGES}")
    if runs("arm64"):
        yield
        return
    # F: the kernel opens the interpreter now, so it is found from within any root.
    _register(f":{NAME}:M::{MAGIC}:{MASK}:{INTERPRETER}:F")
    try:
        yield
    finally:
        (BINFMT / NAME).write_text("-1")


def _register(line: str) -> None:
    try:
        if not (BINFMT / "register").exists():
            run("mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT))
        (BINFMT / "register").write_text(line)
    except (OSError, Unavailable) as error:
        raise Unavailable(f"the kernel takes no QEMU for arm64's programs (binfmt_misc): {error}") from error
