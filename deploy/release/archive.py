"""Archives that are the same, byte for byte, whenever their files are: names in order, one time, no owner.

Owns tar files, plain and compressed by gzip. What is in them is their makers' business.
"""

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NotPacked(Exception):
    """An archive could not be made, or lacks what it must have; the text says why."""


def pack(folder: Path, archive: Path, epoch: int) -> None:
    """Write all below ``folder`` to ``archive``, compressed where its name ends with ``gz``, all of time ``epoch``."""
    with _opened(archive) as made:
        for path in sorted(folder.rglob("*")):
            member = made.gettarinfo(path, str(path.relative_to(folder)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            # Of the permissions alone that the owner can execute: the others depend on who unpacked the parts.
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            if member.isfile():
                with path.open("rb") as content:
                    made.addfile(member, content)
            else:
                made.addfile(member)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    with archive.open("wb") as file:
        if not archive.name.endswith("gz"):
            with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as made:
                yield made
            return
        # Neither a name nor a time is in the header.
        with (
            gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as made,
        ):
            yield made
