"""Discover a node: its machine, its kubelet's settings, and the allocations of its containers.

Replay is only as good as the state it starts from, so this room reads each fact where the kubelet reads it, and names
every contradiction in a condition instead of guessing. It owns the sources, one a file: those in ``machine``, and
``kubelet_config``, ``kubelet_process``, ``pod_resources`` and ``state_files`` for the kubelet. ``kubelet_settings``,
``allocations`` and ``assemble`` combine them. Publishing is left to ``publish``, the kubelet's rules to ``replay``.
"""

from dataclasses import replace
from pathlib import Path

from topomend.discover.allocations import AllocationReader
from topomend.discover.assemble import Discovery, Host, assemble
from topomend.discover.host_files import Root
from topomend.discover.kubelet_process import PROC
from topomend.discover.kubelet_settings import SettingsReader, WrittenConfig
from topomend.discover.machine.pci import read_pci_devices
from topomend.discover.machine.sysfs import read_machine

__all__ = ["Discovery", "discover", "read_host"]


def discover(  # noqa: PLR0913 - one argument for each source
    root: Path,
    kubelet_config: Path | None,
    pod_resources: Path | None,
    kubelet_state: Path | None,
    node_name: str,
    *,
    kubelet_config_dir: Path | None = None,
    kubelet_version: str | None = None,
) -> Discovery:
    """Read every given source once and return the node.

    ``root`` holds ``sys`` and ``proc``. ``pod_resources`` is the kubelet's socket, ``kubelet_state`` its root
    directory. The conditions name each source that is missing or wrong. Never raises.
    """
    proc = PROC if root.absolute() == Path("/") else None
    config = SettingsReader(WrittenConfig(kubelet_config, kubelet_config_dir), proc=proc).read(kubelet_version)
    allocations = AllocationReader(pod_resources, kubelet_state).read(lists_ended=config.lists_ended_pods)
    return assemble(node_name, read_host(root, whole=True), config, allocations)


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
