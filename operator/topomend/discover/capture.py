"""A machine as an archive that ``discover --root`` reads like the machine itself: a bug report that is a test case.

What goes in is what discovery reads, and no more: a Root that remembers everything it was asked for. Of files that
tell more than is asked (/proc/cpuinfo, meminfo, udev's records) only the lines that are asked for go in. Hardware
addresses that systemd puts into interface names are replaced. Nothing of the kubelet is read.
"""

import gzip
import io
import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from topomend.discover import read_host_of
from topomend.discover.assemble import Host
from topomend.discover.host_files import MAX_BYTES, Root
from topomend.discover.pci import ADDRESS, record_of

_HARDWARE_ADDRESS = re.compile(r"\b([a-z]{2,5}x)([0-9a-f]{16}|[0-9a-f]{12})\b", re.ASCII)
"""In names such as ``enx00e04c680001`` (systemd.net-naming-scheme, rdma_rename): the MAC or GUID after the x."""


@dataclass
class EventRecorder(Root):
    """A Root that remembers the files, links and folders it was asked for, by their real path relative to the root."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def resolve(self, name: str) -> str:
        """Always one step at a time: each link on the way is remembered."""
        return self.walk(name)

    def read_link(self, path: str) -> str | None:
        """What the link says, remembered as a relative one."""
        link = super().read_link(path)
        if link is not None:
            place = self._place(path)
            self.links[place] = os.path.relpath(link.lstrip("/"), os.path.dirname(place)) if link[:1] == "/" else link  # noqa: PTH120 - no file
        return link

    def text(self, name: str, *, most: int = MAX_BYTES) -> str | None:
        """The text, remembered whole."""
        text = super().text(name, most=most)
        self._remember(name, text)
        return text

    def lines(self, name: str, pattern: re.Pattern[str], *, most: int = MAX_BYTES) -> list[str] | None:
        """The lines asked for; the others are not remembered."""
        text = super().text(name, most=most)
        lines = None if text is None else [line for line in text.splitlines() if pattern.fullmatch(line)]
        self._remember(name, None if lines is None else "\n".join(lines))
        return lines

    def names(self, folder: str, pattern: re.Pattern[str] | None = None) -> list[str]:
        """The names. In /sys/class they are remembered only once they are followed: most are no PCI device's."""
        names = super().names(folder) if pattern is None else super().names(folder, pattern)
        if not folder.startswith("sys/class/"):
            real = self.resolve(folder)
            for path in (f"{real}/{name}" for name in names):
                if self.read_link(path) is None and Path(path).is_dir():
                    self.folders.add(self._place(path))
        return names

    def exists(self, name: str) -> bool:
        """Whether there is such a file, which is remembered with its text."""
        return self.text(name) is not None if super().exists(name) else False

    def _remember(self, name: str, text: str | None) -> None:
        if text is not None:
            self.files[self._place(self.resolve(name))] = f"{text}\n"

    def _place(self, path: str) -> str:
        return os.path.relpath(path, self.path)


@dataclass(frozen=True)
class Capture:
    """An archive's content, and what was found on the machine on the way."""

    host: Host
    archive: bytes
    files: int


def capture(path: Path, folder: str) -> Capture:
    """What discovery reads under ``path``, as a .tar.gz whose one folder is ``folder``. Equal machines, equal bytes."""
    recorder = EventRecorder(path.absolute())
    host = read_host_of(recorder, whole=True)
    # What udev knew by itself stands in no file of the machine that would lead to the same names.
    for device in host.machine.pci_devices:
        if device.vendor_name or device.device_name:
            recorder.files[record_of(device.address)] = (
                f"E:ID_VENDOR_FROM_DATABASE={device.vendor_name}\nE:ID_MODEL_FROM_DATABASE={device.device_name}\n"
            )
    entries = list(_entries(recorder, folder))
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for entry, text in entries:
            archive.addfile(entry, io.BytesIO(text))
    return Capture(host, packed.getvalue(), len(entries))


def _entries(recorder: EventRecorder, folder: str) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Links of devices that are no PCI device's are left out: among them are the interfaces of pods."""
    scrub = _Scrubber()
    for place in sorted(recorder.folders):
        entry = tarfile.TarInfo(f"{folder}/{place}")
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        yield entry, b""
    for place, text in sorted(recorder.files.items()):
        content = text.encode()
        entry = tarfile.TarInfo(f"{folder}/{scrub(place)}")
        entry.size = len(content)
        yield entry, content
    for place, target in sorted(recorder.links.items()):
        if place.startswith("sys/class/") and not _leads_to_pci(recorder, place):
            continue
        entry = tarfile.TarInfo(f"{folder}/{scrub(place)}")
        entry.type, entry.linkname = tarfile.SYMTYPE, scrub(target)
        yield entry, b""


def _leads_to_pci(recorder: EventRecorder, place: str) -> bool:
    return any(ADDRESS.fullmatch(part) for part in recorder.target(place).split("/"))


class _Scrubber:
    """Hardware addresses in names, each replaced by a number of its own."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        return _HARDWARE_ADDRESS.sub(self._replaced, text)

    def _replaced(self, matched: re.Match[str]) -> str:
        number = self._numbers.setdefault(matched[2], len(self._numbers) + 1)
        return f"{matched[1]}{number:0{len(matched[2])}x}"
