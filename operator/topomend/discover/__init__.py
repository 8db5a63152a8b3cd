"""Finding out about a node: its machine, its kubelet's settings, and who holds what.

One source a file: ``sysfs``, ``hardware``, ``pci`` and ``udev`` for the machine, ``kubelet_config``,
``kubelet_process``, ``pod_resources`` and ``state_files`` for the kubelet. ``kubelet_settings``, ``allocations`` and
``assemble`` put them together. Publishing is another room's.
"""

from dataclasses import replace
from pathlib import Path

from topomend.discover.allocations import AllocationReader
from topomend.discover.assemble import Discovery, Host, assemble
from topomend.discover.host_files import Root
from topomend.discover.kubelet_config import with_version
from topomend.discover.kubelet_process import PROC
from topomend.discover.kubelet_settings import SettingsReader, WrittenConfig
from topomend.discover.pci import read_pci_devices
from topomend.discover.sysfs import read_machine

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
    """Look once at everything that is given. What is not given, or wrong, is said in the conditions; never raises."""
    held = AllocationReader(pod_resources, kubelet_state).read()
    proc = PROC if root.absolute() == Path("/") else None
    settings = SettingsReader(WrittenConfig(kubelet_config, kubelet_config_dir), proc=proc).read()
    return assemble(node_name, read_host(root, whole=True), with_version(settings, kubelet_version), held)


def read_host(path: Path, *, whole: bool = False) -> Host:
    """The machine under a root directory, with the PCI devices that matter for placement.

    ``whole`` adds what is too much to publish, or changes from moment to moment: every PCI function, and how many huge
    pages are free and promised.
    """
    return read_host_of(Root(path.absolute()), whole=whole)


def read_host_of(root: Root, *, whole: bool = False) -> Host:
    """As ``read_host``, through a Root of one's own."""
    machine = read_machine(root, whole=whole)
    machine = replace(machine, pci_devices=read_pci_devices(root, machine, whole=whole))
    return Host(machine, tuple(dict.fromkeys(root.problems)), tuple(dict.fromkeys(root.remarks)))
