"""A whole node, read once: its machine, its kubelet's settings, and its allocations. Leaves the rest to the sources."""

from pathlib import Path

from topomend.discover.allocations import AllocationReader
from topomend.discover.assemble import Discovery, assemble
from topomend.discover.host import read_host
from topomend.discover.kubelet_config.kubelet_process import PROC
from topomend.discover.kubelet_settings import SettingsReader, WrittenConfig


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
