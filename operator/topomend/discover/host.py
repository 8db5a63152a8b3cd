"""A machine without its kubelet: sysfs and PCI joined. Needs no package but pyudev, and that for names alone."""

from dataclasses import dataclass, replace
from pathlib import Path

from topomend.discover.host_files import Root
from topomend.discover.machine.pci import read_pci_devices
from topomend.discover.machine.sysfs import read_machine
from topomend.model.machine import Machine


@dataclass(frozen=True)
class Host:
    """The machine, ``problems`` that make it unreliable, and ``remarks`` that admission does not depend on."""

    machine: Machine
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def read_host(path: Path, *, whole: bool = False) -> Host:
    """Read the machine under a root directory, with the PCI devices that work can be placed by.

    ``whole`` adds every PCI function and the counts of free and reserved huge pages. The agent does not publish these:
    they are too many, or change too often. Never raises; the Host lists problems and remarks.
    """
    return read_host_of(Root(path.absolute()), whole=whole)


def read_host_of(root: Root, *, whole: bool) -> Host:
    """Read the machine as ``read_host`` does, through a Root that the caller made."""
    machine = read_machine(root, whole=whole)
    machine = replace(machine, pci_devices=read_pci_devices(root, machine, whole=whole))
    return Host(machine, tuple(dict.fromkeys(root.problems)), tuple(dict.fromkeys(root.remarks)))
