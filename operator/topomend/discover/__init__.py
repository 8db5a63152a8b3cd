"""Finding out about a node: its machine, its kubelet's settings, and who holds what.

One source a file: ``sysfs``, ``pci`` and ``udev`` for the machine, ``kubelet_config``, ``pod_resources`` and
``state_files`` for the kubelet. ``allocations`` and ``assemble`` put them together. Publishing is another room's.
"""

from dataclasses import replace
from pathlib import Path

from topomend.discover.allocations import AllocationReader
from topomend.discover.assemble import Discovery, Host, assemble
from topomend.discover.kubelet_config import read_kubelet_config, with_version
from topomend.discover.pci import read_pci_devices
from topomend.discover.root import Root
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
    reader = AllocationReader(pod_resources, kubelet_state)
    try:
        held = reader.read()
    finally:
        reader.close()
    config = with_version(read_kubelet_config(kubelet_config, kubelet_config_dir), kubelet_version)
    return assemble(node_name, read_host(root), config, held)


def read_host(path: Path) -> Host:
    """The machine under a root directory, PCI devices included."""
    root = Root(path.absolute())
    machine = read_machine(root)
    machine = replace(machine, pci_devices=read_pci_devices(root, machine))
    return Host(machine, tuple(dict.fromkeys(root.problems)), tuple(dict.fromkeys(root.remarks)))
