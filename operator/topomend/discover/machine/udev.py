"""libudev on the running machine: names of PCI devices, and notifications of device changes.

Owns pyudev. libudev always reads this machine, so nothing here takes a root; for a recorded tree ``pci`` reads udev's
files.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_log = logging.getLogger(__name__)

_NAMES = ("ID_VENDOR_FROM_DATABASE", "ID_MODEL_FROM_DATABASE")
_SUBSYSTEMS = ("cpu", "memory", "node", "pci")


class UdevUnavailable(Exception):
    """libudev is not installed, or it cannot listen to the kernel. The text says which."""


def pci_names() -> dict[str, tuple[str, str]]:
    """The names of vendor and device of every PCI device by address, empty if udev's hardware database has none.

    udev's own record of a device comes first. Where no udev runs, as in most containers, the database is queried as
    udev would: by the device's ``MODALIAS``. Raises UdevUnavailable, and ModuleNotFoundError without pyudev.
    """
    context = _context()
    database = _HardwareDatabase(context)
    return {
        str(device.sys_name): _names_of(device.properties, database) for device in context.list_devices(subsystem="pci")
    }


def _names_of(properties: Mapping[str, str], database: "_HardwareDatabase") -> tuple[str, str]:
    if not any(name in properties for name in _NAMES):
        properties = database.properties(properties.get("MODALIAS", ""))
    vendor, model = (str(properties.get(name, "")) for name in _NAMES)
    return vendor, model


class _HardwareDatabase:
    """udev's hardware database (hwdb.bin), through pyudev's private libudev binding: pyudev has no class for it."""

    def __init__(self, context: Any) -> None:
        self._libudev = context._libudev
        self._database = self._libudev.udev_hwdb_new(context)

    def __del__(self) -> None:
        if self._database:
            self._libudev.udev_hwdb_unref(self._database)

    def properties(self, modalias: str) -> dict[str, str]:
        """The database's properties of a device; empty without a database."""
        if not self._database or not modalias:
            return {}
        entry = self._libudev.udev_hwdb_get_properties_list_entry(self._database, modalias.encode(), 0)
        properties_by_name = {}
        while entry:
            name = self._libudev.udev_list_entry_get_name(entry)
            properties_by_name[name.decode()] = (self._libudev.udev_list_entry_get_value(entry) or b"").decode(
                errors="replace"
            )
            entry = self._libudev.udev_list_entry_get_next(entry)
        return properties_by_name


class MachineChanges:
    """Listens for PCI devices, CPUs and memory that are added, removed, or switched on- and offline.

    It receives the kernel's messages, not udev's: they reach a container in which no udev runs. The constructor raises
    UdevUnavailable.
    """

    def __init__(self) -> None:
        self._context = _context()
        self._monitor = self._listen()

    def _listen(self) -> Any:
        import pyudev  # type: ignore[import-untyped]  # noqa: PLC0415  it carries no types

        try:
            monitor = pyudev.Monitor.from_netlink(self._context, source="kernel")
            for subsystem in _SUBSYSTEMS:
                monitor.filter_by(subsystem)
            monitor.start()
        except OSError as error:
            raise UdevUnavailable(f"the kernel's device messages cannot be received ({error})") from error
        return monitor

    def happened(self) -> bool:
        """Whether anything changed since the last call; does not wait. Lost messages count as a change."""
        changed = False
        try:
            while (device := self._monitor.poll(timeout=0)) is not None:
                _log.info("the kernel says: %s %s", device.action, device.sys_path)
                changed = True
        except OSError as error:
            _log.warning("device messages were lost (%s): the machine is read again", error)
            # pyudev never clears the socket's error and would raise it for ever. If no new socket can be opened, every
            # poll reads the machine again: slow, but correct.
            with suppress(UdevUnavailable):
                self._monitor = self._listen()
            return True
        return changed


def _context() -> Any:
    import pyudev  # noqa: PLC0415  it belongs to the extra operator, and machines are read without it

    try:
        return pyudev.Context()
    except (ImportError, OSError) as error:
        raise UdevUnavailable(f"libudev cannot be used ({error})") from error
