"""One movable root under which every file of a host is read: ``/`` for this machine, a folder for a recorded one.

Owns bounded reads that do not fail: a file that cannot be read becomes a problem with its path, never an exception.
What a file means, and whether it may be absent, is left to the module that reads it.
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
"""Bytes. The files of sysfs and procfs that discovery reads are far smaller; a longer one is something else."""

MAX_ENTRIES = 1 << 14
MAX_NAME = 128
"""Drivers, interfaces and disks have shorter names."""

MAX_LINKS = 40
"""Symbolic links that Linux follows in one path (ELOOP beyond)."""

_ANY = re.compile(r"[ -~]+")
"""A printable name; the kernel makes no others here."""

_HEXADECIMAL = re.compile(r"(0x)?[0-9a-f]+", re.ASCII | re.IGNORECASE)

_PADDING = " \t\r\n\0"
"""Recorded trees carry zero bytes where sysfs gave a whole page."""


class SourceUnreadable(Exception):
    """A file cannot be read. The text completes a sentence that begins with the file's name."""


class Absent(SourceUnreadable):
    """The file does not exist."""


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Raises SourceUnreadable; Absent if there is no file."""
    try:
        # Opening a pipe or device of that name could otherwise block for ever.
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise SourceUnreadable("is not a file")
            content = stream.read(most + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Absent("is not there") from error
    except (OSError, ValueError) as error:
        raise SourceUnreadable(f"cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if len(content) > most:
        raise SourceUnreadable(f"is longer than {most} bytes")
    return content


def is_absent(path: Path) -> bool:
    """Whether nothing has that path. Not where this cannot be told: who reads it then learns why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


@dataclass
class Root:
    """Files under ``path``. ``problems`` collects failed reads, each with its file and the consequence.

    ``remarks`` collects observations that admission does not depend on.
    """

    path: Path
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """Whether the root is the running machine's own."""
        return self.path == Path("/")

    def beside(self) -> Self:
        """The same files for facts that admission does not depend on: their problems become remarks."""
        return replace(self, problems=self.remarks)

    def text(self, name: str, *, most: int = MAX_BYTES) -> str | None:
        """A file's text without padding. None if the file is absent, or unreadable, which is a problem too."""
        try:
            return read_bytes(Path(self.resolve(name)), most).decode("utf-8", errors="replace").strip(_PADDING)
        except Absent:
            return None
        except SourceUnreadable as error:
            self.problem(name, str(error))
            return None

    def integer(self, name: str) -> int | None:
        """The integer in a file. None if the file is absent, or holds no integer, which is a problem too."""
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
        """The cpulist in a file as a bit mask. None if the file is absent, or holds no list, which is a problem too."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_id_list(text)
        except InvalidIDList as error:
            self.problem(name, f"is not a list of ids: {error}")
            return None

    def id_map(self, name: str) -> int | None:
        """The bit mask in a map such as ``00000000,000000ff``. None if absent, or malformed, which is a problem too.

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
        """The lines of a file that match ``pattern`` whole; None if the file is absent or unreadable.

        For files with far more content than discovery needs: a capture records these lines only.
        """
        text = self.text(name, most=most)
        return None if text is None else [line for line in text.splitlines() if pattern.fullmatch(line)]

    def names(self, folder: str, pattern: re.Pattern[str] = _ANY) -> list[str]:
        """The names in a folder that match ``pattern`` whole, sorted as bytes; empty if there is no such folder."""
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
        """Whether a file or folder of that name exists."""
        return os.path.exists(self.resolve(name))  # noqa: PTH110 - Path.exists raises on odd names before 3.12

    def link(self, name: str) -> str:
        """The last component of a symbolic link's target; empty if there is no link, or it is not printable."""
        folder, _, last = name.rpartition("/")
        target = (self.read_link(f"{self.resolve(folder)}/{last}") or "").rpartition("/")[2]
        return target[:MAX_NAME] if _ANY.fullmatch(target) else ""

    def read_link(self, path: str) -> str | None:
        """The target of the link at a real path; None if there is no link."""
        try:
            return str(Path(path).readlink())
        except OSError:
            return None

    def target(self, name: str) -> str:
        """The path of a name with every link followed, relative to the root."""
        return os.path.relpath(self.resolve(name), self.path)

    def problem(self, name: str, text: str) -> None:
        """Record that a file is wrong; ``text`` follows its name and says the consequence too."""
        self.problems.append(f"/{name} {text}")

    def remark(self, name: str, text: str) -> None:
        """Record an observation about a file; ``text`` follows its name."""
        self.remarks.append(f"/{name} {text}")

    def resolve(self, name: str) -> str:
        """The real path of ``name``, links followed inside the root: an absolute one starts again at the root."""
        return os.path.realpath(f"/{name}") if self.live else self.walk(name)

    def walk(self, name: str) -> str:
        """Resolve ``name`` one step at a time, inside the root. At most MAX_LINKS links are followed."""
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
