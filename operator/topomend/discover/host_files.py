"""One movable root under which every file of a host is read: ``/`` for this machine, a folder for a recorded one.

Owns bounded, forgiving reads: what cannot be read becomes a problem with its path, never an exception. What a file
means, and whether its absence matters, is for the module that asks.
"""

import os
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from topomend.model.bitmask import MAX_ID, InvalidIDList, parse_id_list
from topomend.model.quantity import MAX_INT64

MAX_BYTES = 1 << 16
"""Files of sysfs and procfs that are read here are far smaller; a longer one is not what it pretends to be."""

MAX_ENTRIES = 1 << 14
MAX_NAME = 128
"""Drivers, interfaces and disks have shorter names."""

MAX_LINKS = 40
"""As many symbolic links as Linux follows in one path (ELOOP beyond)."""

_ANY = re.compile(r"[ -~]+")
"""A name that can be printed: of no other does the kernel make a file here."""

_HEXADECIMAL = re.compile(r"(0x)?[0-9a-f]+", re.ASCII | re.IGNORECASE)

_PADDING = " \t\r\n\0"
"""Recorded trees carry zero bytes where sysfs gave a whole page."""


class Unreadable(Exception):
    """A file that cannot be read; the text completes a sentence that begins with its name."""


class Absent(Unreadable):
    """There is no such file."""


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Raises Unreadable, of which Absent is one."""
    try:
        # A pipe or device of that name would otherwise hold the reader for ever.
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise Unreadable("is not a file")
            content = stream.read(most + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Absent("is not there") from error
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if len(content) > most:
        raise Unreadable(f"is longer than {most} bytes")
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


@dataclass
class Root:
    """Files under ``path``. ``problems`` collects what was wrong, each with the file and what follows from it.

    ``remarks`` collects what is worth saying and yet changes nothing that admission depends on.
    """

    path: Path
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """Whether this is the running machine."""
        return self.path == Path("/")

    def beside(self) -> Self:
        """The same files, for facts that admission does not depend on: what is wrong with these is only a remark."""
        return replace(self, problems=self.remarks)

    def text(self, name: str, *, most: int = MAX_BYTES) -> str | None:
        """A file's text without padding; None where there is none, or where it cannot be read (then a problem, too)."""
        try:
            return read_bytes(Path(self.resolve(name)), most).decode("utf-8", errors="replace").strip(_PADDING)
        except Absent:
            return None
        except Unreadable as error:
            self.problem(name, str(error))
            return None

    def integer(self, name: str) -> int | None:
        """The whole number in a file; None where there is no file, or no number in it (then a problem, too)."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text[:40], 10)
        except ValueError:
            number = MAX_INT64 + 1
        if not -MAX_INT64 <= number <= MAX_INT64:
            self.problem(name, f"holds {text[:40]!r} where a whole number belongs")
            return None
        return number

    def id_list(self, name: str) -> int | None:
        """The cpulist in a file as a set; None where there is no file, or no list in it (then a problem, too)."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_id_list(text)
        except InvalidIDList as error:
            self.problem(name, f"is not a list of ids: {error}")
            return None

    def id_map(self, name: str) -> int | None:
        """The set in a hexadecimal map such as ``00000000,000000ff``; None where there is none (else a problem, too).

        Source of the format: Documentation/core-api/printk-formats.rst (bitmaps, ``%*pb``).
        """
        text = self.text(name)
        if text is None:
            return None
        digits = text.replace(",", "").replace("\n", "") or "0"
        if not _HEXADECIMAL.fullmatch(digits) or int(digits, 16) >> MAX_ID:
            self.problem(name, f"holds {text[:40]!r} where a map of ids belongs")
            return None
        return int(digits, 16)

    def lines(self, name: str, pattern: re.Pattern[str], *, most: int = MAX_BYTES) -> list[str] | None:
        """The lines of a file that match ``pattern`` whole; None where there is no file.

        For files that tell far more than is asked: nothing else of them is kept.
        """
        text = self.text(name, most=most)
        return None if text is None else [line for line in text.splitlines() if pattern.fullmatch(line)]

    def names(self, folder: str, pattern: re.Pattern[str] = _ANY) -> list[str]:
        """The names in a folder that match ``pattern`` whole, sorted as bytes; empty where there is no such folder."""
        try:
            with os.scandir(self.resolve(folder)) as entries:
                matching = (entry.name for entry in entries if pattern.fullmatch(entry.name))
                names = sorted(name for name, _ in zip(matching, range(MAX_ENTRIES + 1), strict=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.problem(folder, f"cannot be listed ({error.strerror or error})")
            return []
        if len(names) > MAX_ENTRIES:
            self.problem(folder, f"holds more than {MAX_ENTRIES} names; the rest was left out")
        return names[:MAX_ENTRIES]

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""
        return os.path.exists(self.resolve(name))  # noqa: PTH110 - Path.exists raises on odd names before 3.12

    def link(self, name: str) -> str:
        """The last name of what a symbolic link points at; empty where there is no link, or no name to print."""
        folder, _, last = name.rpartition("/")
        found = (self.read_link(f"{self.resolve(folder)}/{last}") or "").rpartition("/")[2]
        return found[:MAX_NAME] if _ANY.fullmatch(found) else ""

    def read_link(self, path: str) -> str | None:
        """What the link at a real path says; None where there is no link."""
        try:
            return str(Path(path).readlink())
        except OSError:
            return None

    def target(self, name: str) -> str:
        """Where a name leads once every link is followed, relative to the root."""
        return os.path.relpath(self.resolve(name), self.path)

    def problem(self, name: str, what: str) -> None:
        """Note what is wrong with a file, and what follows from it."""
        self.problems.append(f"/{name} {what}")

    def remark(self, name: str, what: str) -> None:
        """Note what is worth saying about a file."""
        self.remarks.append(f"/{name} {what}")

    def resolve(self, name: str) -> str:
        """The real path of ``name``, links followed inside the root: an absolute one starts again at the root."""
        return os.path.realpath(f"/{name}") if self.live else self.walk(name)

    def walk(self, name: str) -> str:
        """As ``resolve``, one step at a time."""
        rest = [part for part in reversed(name.split("/")) if part]
        where: list[str] = []
        links = 0
        while rest:
            part = rest.pop()
            if part == "..":
                del where[-1:]
                continue
            where.append(part)
            link = self.read_link(self._join(where))
            if link is None:
                continue
            links += 1
            if links > MAX_LINKS:
                break
            where = [] if link.startswith("/") else where[:-1]
            rest += [step for step in reversed(link.split("/")) if step not in ("", ".")]
        return self._join(where)

    def _join(self, parts: list[str]) -> str:
        return "/".join((str(self.path).rstrip("/"), *parts))
