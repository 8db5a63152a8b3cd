"""``discover``: print this host, or a recorded one, as a NodeTopology. Writes nothing and needs no cluster."""

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from topomend.cli.output.console import echo, echo_data
from topomend.cli.output.failures import NOT_KNOWN, BadInput, CannotAsk
from topomend.cli.output.formats import (
    DOCUMENTS,
    JSON,
    NAME,
    TABLE,
    WIDE,
    YAML,
    echo_document,
    object_name,
    output_option,
)
from topomend.cli.output.table import echo_table
from topomend.discover.assemble import HOST_DISCOVERED, Discovery
from topomend.discover.capture import NotACapture, unpacked
from topomend.discover.discover import discover as look
from topomend.discover.features.node_features import node_features
from topomend.discover.machine.pci_distance import pci_distance
from topomend.model.bitmask import format_id_list
from topomend.model.machine import HugePages, Machine, NUMANode, PCIDevice, PCILink
from topomend.model.quantity import format_bytes
from topomend.runtime.timestamp import timestamp
from topomend.wire.group import API_VERSION, NODE_TOPOLOGY
from topomend.wire.published.node_feature import local_source
from topomend.wire.published.node_topology import node_topology, status_of

NFD = "nfd"

_FILE = click.Path(dir_okay=False, path_type=Path)
MOST_COLUMNS = 24
"""The most columns in the table of distances: a wider one is unreadable on a screen."""

_FOLDER = click.Path(file_okay=False, path_type=Path)


_EXAMPLES = """\b
Examples:
  topomend discover                                   # this host
  topomend discover -o json > host.json
  topomend discover --root gpu-01.tar.gz -o wide      # a host packed by topomend capture
  topomend discover -o nfd                            # labels, as a file of Node Feature Discovery
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--root",
    type=click.Path(exists=True, path_type=Path),
    default=Path("/"),
    show_default=True,
    metavar="DIR|FILE",
    help="The folder that contains sys/ and proc/, or an archive of topomend capture.",
)
@click.option("--kubelet-config", type=_FILE, metavar="FILE", help="The kubelet's configuration file.")
@click.option("--kubelet-config-dir", type=_FOLDER, metavar="DIR", help="The kubelet's drop-in folder (--config-dir).")
@click.option("--pod-resources", type=_FILE, metavar="SOCKET", help="The kubelet's pod-resources socket.")
@click.option("--kubelet-state", type=_FOLDER, metavar="DIR", help="The kubelet's root directory.")
@click.option("--kubelet-version", metavar="VERSION", help="The kubelet's version, such as v1.36.3.")
@click.option("--node-name", metavar="NAME", help="The node's name. Default: the host's name, or the folder's.")
@output_option(TABLE, WIDE, JSON, YAML, NAME, NFD)
@click.pass_context
def discover(
    context: click.Context, /, *, root: Path, node_name: str | None, output: str, **parts: Path | str | None
) -> None:
    """Print this host, or a recorded one, as a NodeTopology.

    Works without the kubelet's files and socket; the conditions name each missing or unreadable source. The table lists
    accelerators, network adapters and storage, -o wide every PCI function, -o nfd a file for the local source of Node
    Feature Discovery. --root reads a machine that topomend capture has packed. Exits with 3 if the machine could not
    be read completely.
    """
    with _tree(root) as tree:
        discovery = look(tree, **parts, node_name=node_name or _name_of(tree))  # type: ignore[arg-type]  # click's own
    if not discovery.state.machine.cores:
        raise CannotAsk(
            f"--root {root}: no online CPU under sys/devices/system/cpu; name a folder that contains sys/ and proc/"
        )
    if output in DOCUMENTS:
        echo_document(_object(discovery), output)
    elif output == NFD:
        is_ready = discovery.conditions[0].status == "True"
        echo_data(local_source(node_features(discovery.state, is_ready=is_ready)))
    elif output == NAME:
        echo(object_name(API_VERSION, NODE_TOPOLOGY, discovery.state.name))
    else:
        _PRINTERS[output](discovery)
    if any(each.type == HOST_DISCOVERED and each.status != "True" for each in discovery.conditions):
        context.exit(NOT_KNOWN)


@contextmanager
def _tree(root: Path) -> Iterator[Path]:
    """The folder with sys/ and proc/: that of an archive, during the block. Raises BadInput."""
    if os.path.isdir(root):  # noqa: PTH112 - Path.is_dir raises where a folder is closed
        yield root
        return
    try:
        with unpacked(root) as folder:
            yield folder
    except NotACapture as error:
        raise BadInput(f"--root {root}: neither a folder nor an archive of topomend capture: {error}") from error


def _name_of(root: Path) -> str:
    """A valid Node name: the host's, or the folder's for a recorded tree."""
    name = socket.gethostname() if root == Path("/") else root.resolve().name
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "host"


def _object(discovery: Discovery) -> dict[str, Any]:
    """The object as the kind's schema asks for it: whatever holds has held since now, as far as is known."""
    now = timestamp()
    conditions = [condition._replace(last_transition_time=now) for condition in discovery.conditions]
    status = status_of(discovery.state, discovery.summary, conditions, discovery.claims)
    return node_topology(discovery.state.name, status)


def _print_table(discovery: Discovery) -> None:
    _echo_tables(
        discovery, [device for device in discovery.state.machine.pci_devices if device.kind not in ("", "bridge")]
    )


def _print_wide(discovery: Discovery) -> None:
    _echo_tables(discovery, discovery.state.machine.pci_devices)


def _echo_tables(discovery: Discovery, devices: Sequence[PCIDevice]) -> None:
    machine = discovery.state.machine
    echo_table([_NUMA_HEADING, *(_numa_row(discovery, node) for node in machine.numa_nodes)])
    echo()
    echo_table([_PROCESSOR_HEADING, _processor_row(machine)])
    if devices:
        echo()
        echo_table([_PCI_HEADING, *map(_pci_row, devices)])
    adapters = [device for device in machine.pci_devices if device.kind in ("accelerator", "network")]
    _echo_distances([device for device in adapters if not device.physical_function])
    echo()
    echo_table([("CONDITION", "STATUS", "REASON", "MESSAGE"), *_condition_rows(discovery)])


_NUMA_HEADING = ("NUMA", "CPUS", "MEMORY", "HUGEPAGES", "DEVICES", "PCI")


def _numa_row(discovery: Discovery, node: NUMANode) -> tuple[str, ...]:
    machine = discovery.state.machine
    here = [device for device in discovery.state.devices if device.numa_nodes and node.id in device.numa_nodes]
    memory = format_bytes(node.memory)
    return (
        str(node.id),
        format_id_list(machine.cpus_of_numa_node.get(node.id, 0)) or "-",
        f"{memory} of GPU {node.gpu}" if node.gpu else memory,
        ",".join(_hugepages(pool) for pool in node.hugepages if pool.count) or "-",
        str(len(here)),
        str(sum(device.numa_node == node.id for device in machine.pci_devices)),
    )


def _hugepages(pool: HugePages) -> str:
    text = f"{pool.count}x{format_bytes(pool.size)}"
    return text if pool.free is None else f"{text} ({pool.free} free)"


_PROCESSOR_HEADING = (
    "SOCKETS", "DIES", "CLUSTERS", "L3-CACHES", "CORES", "THREADS", "KINDS", "OFFLINE", "ISOLATED", "NOHZ-FULL",
)  # fmt: skip


def _processor_row(machine: Machine) -> tuple[str, ...]:
    hardware = machine.hardware
    of_kubelet = len(machine.cpus_of_socket)
    sockets = len(hardware.sockets) or of_kubelet
    caches = {core.l3_cache for core in machine.cores} - {None}
    kinds = (f"{kind.name or kind.capacity}:{format_id_list(kind.cpus)}" for kind in hardware.core_kinds)
    return (
        _counted(sockets, of_kubelet),
        str(len(hardware.dies) or sockets),
        str(len(hardware.clusters) or "-"),
        _counted(len(hardware.l3_caches), len(caches)),
        _counted(len(hardware.cores or machine.cores), len(machine.cores)),
        str(machine.cpus.bit_count()),
        " ".join(kinds) or "-",
        format_id_list(machine.offline) or "-",
        format_id_list(machine.isolated) or "-",
        format_id_list(hardware.nohz_full) or "-",
    )


def _counted(number: int, of_kubelet: int) -> str:
    """Linux's number, with the kubelet's beside it if that differs: the kubelet counts by other rules."""
    return str(number or "-") if number == of_kubelet else f"{number} (kubelet: {of_kubelet})"


_PCI_HEADING = ("ADDRESS", "KIND", "NUMA", "KNOWN-BY", "LINK", "IOMMU", "DRIVER", "NAMES", "DEVICE", "BEHIND")


def _pci_row(device: PCIDevice) -> tuple[str, ...]:
    name = f"{device.vendor_name} {device.device_name}".strip()
    return (
        device.address,
        device.kind or f"{device.pci_class:06x}",
        "-" if device.numa_node is None else str(device.numa_node),
        device.numa_source or "-",
        _link(device.link),
        "-" if device.iommu_group is None else str(device.iommu_group),
        device.driver or "-",
        ",".join(device.names) or "-",
        name or f"{device.vendor_id:04x}:{device.device_id:04x}",
        device.physical_function or " ".join(device.path) or device.root_complex,
    )


def _link(link: PCILink | None) -> str:
    """Speed and width; ``8 of 16 GT/s x8 of x16`` if the link runs below its maximum."""
    if link is None or link.speed is None or link.width is None:
        return "-"
    speed = f"{link.speed:g}" if link.max_speed in (None, link.speed) else f"{link.speed:g} of {link.max_speed:g}"
    width = f"x{link.width}" if link.max_width in (None, link.width) else f"x{link.width} of x{link.max_width}"
    return f"{speed} GT/s {width}"


def _echo_distances(devices: Sequence[PCIDevice]) -> None:
    """Print the table of PCI distances between accelerators and network adapters."""
    if len(devices) < 2:
        return
    echo()
    shown = devices[:MOST_COLUMNS]
    rows = [[device.address, *(pci_distance(device, other) for other in shown)] for device in shown]
    for number, row in enumerate(rows, start=1):
        row[number] = "-"
    echo_table([["DISTANCE", *(device.address for device in shown)], *rows])
    if len(devices) > MOST_COLUMNS:
        echo(f"{len(devices) - MOST_COLUMNS} more are omitted; -o json has the path of each")


def _condition_rows(discovery: Discovery) -> list[tuple[str, str, str, str]]:
    return [
        (condition.type, condition.status, condition.reason, condition.message) for condition in discovery.conditions
    ]


_PRINTERS: Mapping[str, Callable[[Discovery], None]] = {
    TABLE: _print_table,
    WIDE: _print_wide,
}
