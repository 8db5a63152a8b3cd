"""What libudev tells of the running machine: names of PCI devices, and word of devices that come and go.

Owns pyudev. libudev always speaks of this machine, so nothing here knows a root; a recorded tree is read as files.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyudev  # type: ignore[import-untyped]  # it carries no types

_log = logging.getLogger(__name__)

_NAMES = ("ID_VENDOR_FROM_DATABASE", "ID_MODEL_FROM_DATABASE")
_SUBSYSTEMS = ("cpu", "memory", "node", "pci")


class UdevUnavailable(Exception):
    """libudev is not installed, or the kernel does not let it listen."""


def pci_names() -> dict[str, tuple[str, str]]:
    """Vendor's and device's name of every PCI device by address, empty where udev's hardware database has none.

    What udev itself wrote down of a device comes first. Where no udev runs, as in most containers, the database is
    asked as udev would ask it: by the device's ``MODALIAS``. Raises UdevUnavailable.
    """
    context = _context()
    database = _HardwareDatabase(context)
    return {
        str(device.sys_name): _names_of(device.properties, database) for device in context.list_devices(subsystem="pci")
    }


def _names_of(written: Mapping[str, str], database: "_HardwareDatabase") -> tuple[str, str]:
    if not any(name in written for name in _NAMES):
        written = database.properties(written.get("MODALIAS", ""))
    vendor, model = (str(written.get(name, "")) for name in _NAMES)
    return vendor, model


class _HardwareDatabase:
    """udev's hardware database (hwdb.bin), through pyudev's own binding of libudev: it offers no class for it."""

    def __init__(self, context: Any) -> None:
        self._libudev = context._libudev
        self._database = self._libudev.udev_hwdb_new(context)

    def __del__(self) -> None:
        if self._database:
            self._libudev.udev_hwdb_unref(self._database)

    def properties(self, modalias: str) -> dict[str, str]:
        """What the database says of a device; nothing where there is no database."""
        if not self._database or not modalias:
            return {}
        entry = self._libudev.udev_hwdb_get_properties_list_entry(self._database, modalias.encode(), 0)
        found = {}
        while entry:
            name = self._libudev.udev_list_entry_get_name(entry)
            found[name.decode()] = (self._libudev.udev_list_entry_get_value(entry) or b"").decode(errors="replace")
            entry = self._libudev.udev_list_entry_get_next(entry)
        return found


class MachineChanges:
    """Listens for PCI devices, CPUs and memory that come, go, or go on- and offline.

    The kernel's own messages are used, not udev's: they reach a container in which no udev runs.
    Raises UdevUnavailable when it is made.
    """

    def __init__(self) -> None:
        self._context = _context()
        self._monitor = self._listen()

    def _listen(self) -> Any:
        try:
            monitor = pyudev.Monitor.from_netlink(self._context, source="kernel")
            for subsystem in _SUBSYSTEMS:
                monitor.filter_by(subsystem)
            monitor.start()
        except OSError as error:
            raise UdevUnavailable(f"the kernel's device messages cannot be received ({error})") from error
        return monitor

    def happened(self) -> bool:
        """Whether anything came since the last call; does not wait. Lost messages count as a change."""
        seen = False
        try:
            while (device := self._monitor.poll(timeout=0)) is not None:
                _log.info("the kernel says: %s %s", device.action, device.sys_path)
                seen = True
        except OSError as error:
            _log.warning("device messages were lost (%s): the machine is read again", error)
            # pyudev never takes the error off the socket, and would tell it for ever. Where no new socket can be had,
            # the machine is read again and again: dear, but true.
            with suppress(UdevUnavailable):
                self._monitor = self._listen()
            return True
        return seen


def _context() -> Any:
    try:
        return pyudev.Context()
    except (ImportError, OSError) as error:
        raise UdevUnavailable(f"libudev cannot be used ({error})") from error
