"""What libudev tells of the running machine: names of PCI devices, and word of devices that come and go.

Owns pyudev. libudev always speaks of this machine, so nothing here knows a root; a recorded tree is read as files.
"""

import logging
from typing import Any

import pyudev  # type: ignore[import-untyped]  # it carries no types

_log = logging.getLogger(__name__)

_SUBSYSTEMS = ("cpu", "memory", "node", "pci")


class UdevUnavailable(Exception):
    """libudev is not installed, or the kernel does not let it listen."""


def pci_names() -> dict[str, tuple[str, str]]:
    """Vendor's and device's name of every PCI device by address, empty where udev's hardware database has none.

    Raises UdevUnavailable.
    """
    return {
        str(device.sys_name): (
            str(device.properties.get("ID_VENDOR_FROM_DATABASE", "")),
            str(device.properties.get("ID_MODEL_FROM_DATABASE", "")),
        )
        for device in _context().list_devices(subsystem="pci")
    }


class MachineChanges:
    """Listens for PCI devices, CPUs and memory that come, go, or go on- and offline.

    The kernel's own messages are used, not udev's: they reach a container in which no udev runs.
    Raises UdevUnavailable when it is made.
    """

    def __init__(self) -> None:
        context = _context()
        try:
            self._monitor: Any = pyudev.Monitor.from_netlink(context, source="kernel")
            for subsystem in _SUBSYSTEMS:
                self._monitor.filter_by(subsystem)
            self._monitor.start()
        except OSError as error:
            raise UdevUnavailable(f"the kernel's device messages cannot be received ({error})") from error

    def happened(self) -> bool:
        """Whether anything came since the last call; does not wait. Lost messages count as a change."""
        seen = False
        try:
            while (device := self._monitor.poll(timeout=0)) is not None:
                _log.info("the kernel says: %s %s", device.action, device.sys_path)
                seen = True
        except OSError as error:
            _log.warning("device messages were lost (%s): the machine is read again", error)
            return True
        return seen


def _context() -> Any:
    try:
        return pyudev.Context()
    except (ImportError, OSError) as error:
        raise UdevUnavailable(f"libudev cannot be used ({error})") from error
