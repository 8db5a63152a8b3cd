"""Pack a machine into an archive that ``discover --root`` reads like the machine itself.

A bug report becomes a test case this way. The archive holds exactly the files that discovery reads: a Root records
each of them. Of files with further content (/proc/cpuinfo, meminfo, udev's records) it holds only the lines that
discovery uses. Hardware addresses in systemd's interface names are replaced. Nothing of the kubelet is read.
"""

import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from topomend.base.plain_text import plain
from topomend.discover.host import Host, read_host_of
from topomend.discover.host_files import MAX_BYTES, Root
from topomend.discover.machine.pci import ADDRESS, record_of

_HARDWARE_ADDRESS = re.compile(r"\b([a-z]{2,5}x)([0-9a-f]{16}|[0-9a-f]{12})\b", re.ASCII)
"""In names such as ``enx00e04c680001`` (systemd.net-naming-scheme, rdma_rename): the MAC or GUID after the x."""


@dataclass
class RecordingRoot(Root):
    """A Root that records the files, links and folders that are read, by their real path relative to the root."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def resolve(self, name: str) -> str:
        """Resolve one step at a time, so that every link on the way is recorded."""
        return self.walk(name)

    def read_link(self, path: str) -> str | None:
        """The link's target, recorded as a relative path."""
        link = super().read_link(path)
        if link is not None:
            place = self._relative(path)
            self.links[place] = os.path.relpath(link.lstrip("/"), os.path.dirname(place)) if link[:1] == "/" else link  # noqa: PTH120 - no file
        return link

    def text(self, name: str, *, most: int = MAX_BYTES) -> str | None:
        """The text, recorded whole."""
        text = super().text(name, most=most)
        self._record(name, text)
        return text

    def lines(self, name: str, pattern: re.Pattern[str], *, most: int = MAX_BYTES) -> list[str] | None:
        """The matching lines; no other line is recorded."""
        text = super().text(name, most=most)
        lines = None if text is None else [line for line in text.splitlines() if pattern.fullmatch(line)]
        self._record(name, None if lines is None else "\n".join(lines))
        return lines

    def names(self, folder: str, pattern: re.Pattern[str] | None = None) -> list[str]:
        """The names. Entries of /sys/class are recorded only when followed: most do not belong to a PCI device."""
        names = super().names(folder) if pattern is None else super().names(folder, pattern)
        if not folder.startswith("sys/class/"):
            real = self.resolve(folder)
            for path in (f"{real}/{name}" for name in names):
                # Path.is_dir raises where the folder may be listed and not entered.
                if self.read_link(path) is None and os.path.isdir(path):  # noqa: PTH112
                    self.folders.add(self._relative(path))
        return names

    def exists(self, name: str) -> bool:
        """Whether there is such a file. It is recorded with its text."""
        return self.text(name) is not None if super().exists(name) else False

    def _record(self, name: str, text: str | None) -> None:
        if text is not None:
            self.files[self._relative(self.resolve(name))] = f"{text}\n"

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.path)


@dataclass(frozen=True)
class Capture:
    """The machine that was read, the archive's bytes (.tar.gz), and the number of its entries."""

    host: Host
    archive: bytes
    files: int


def capture(path: Path, folder: str) -> Capture:
    """Pack the files that discovery reads under ``path`` into a .tar.gz with one folder, ``folder``. Reproducible."""
    root = RecordingRoot(path.absolute())
    host = read_host_of(root, whole=True)
    # udev's hardware database is no file under the root, so the names from it are written as udev's records.
    for device in host.machine.pci_devices:
        if device.vendor_name or device.device_name:
            root.files[record_of(device.address)] = (
                f"E:ID_VENDOR_FROM_DATABASE={device.vendor_name}\nE:ID_MODEL_FROM_DATABASE={device.device_name}\n"
            )
    entries = list(_entries(root, folder))
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for entry, text in entries:
            archive.addfile(entry, io.BytesIO(text))
    return Capture(host, packed.getvalue(), len(entries))


MAX_ENTRIES, MAX_UNPACKED = 1 << 16, 1 << 26
"""The most files of an archive that are unpacked, and their bytes: a machine of 4,096 CPUs has a tenth."""


class NotACapture(ValueError):
    """A file that is no archive of a machine. The message completes a sentence about it."""


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """The folder of an archive that ``capture`` has made, as ``unpack``, during the block. Raises NotACapture."""
    with TemporaryDirectory(prefix="topomend-capture-") as folder:
        yield unpack(archive, Path(folder))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive that ``capture`` has made into ``folder``: the folder with sys/ in it. Raises NotACapture.

    Anybody may have written the archive: nothing outside ``folder`` is written or linked to, and no more than the
    limits.
    """
    if not hasattr(tarfile, "data_filter"):  # Python 3.11.4 has it
        raise NotACapture("this Python is too old to unpack it safely: unpack it yourself, and name the folder")
    left = MAX_UNPACKED
    try:
        with tarfile.open(archive, "r:gz") as packed:
            for number, entry in enumerate(packed):
                left -= entry.size
                if number >= MAX_ENTRIES or left < 0:
                    raise NotACapture("it is larger than any machine's")
                packed.extract(entry, folder, filter="data")
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, NotACapture):
            raise
        raise NotACapture(f"it cannot be unpacked ({plain(str(error), 160)})") from error
    found = next((place.parent for place in sorted(folder.glob("*/sys")) if place.is_dir()), None)
    if found is None:
        raise NotACapture("it has no folder that contains sys/")
    return found


def _entries(root: RecordingRoot, folder: str) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Archive entries. Class links that lead to no PCI device are left out: among them are the interfaces of pods."""
    scrub = _Scrubber()
    for place in sorted(root.folders):
        entry = tarfile.TarInfo(f"{folder}/{place}")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        yield entry, b""
    for place, text in sorted(root.files.items()):
        content = text.encode()
        entry = tarfile.TarInfo(f"{folder}/{scrub(place)}")
        entry.size = len(content)
        yield entry, content
    for place, target in sorted(root.links.items()):
        if place.startswith("sys/class/") and not _leads_to_pci(root, place):
            continue
        entry = tarfile.TarInfo(f"{folder}/{scrub(place)}")
        entry.type, entry.linkname = tarfile.SYMTYPE, scrub(target)
        yield entry, b""


def _leads_to_pci(root: RecordingRoot, place: str) -> bool:
    return any(ADDRESS.fullmatch(part) for part in root.target(place).split("/"))


class _Scrubber:
    """Replaces each hardware address in names by a number of its own."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        return _HARDWARE_ADDRESS.sub(self._replaced, text)

    def _replaced(self, matched: re.Match[str]) -> str:
        number = self._numbers.setdefault(matched[2], len(self._numbers) + 1)
        return f"{matched[1]}{number:0{len(matched[2])}x}"
