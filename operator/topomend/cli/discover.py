"""``discover``: print this host, or a recorded one, as a NodeTopology. Writes nothing and needs no cluster."""

import json
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import yaml

from topomend.cli.failures import CannotAsk
from topomend.cli.table import echo_table
from topomend.discover import Discovery
from topomend.discover import discover as look
from topomend.model.bitmask import format_id_list
from topomend.model.quantity import format_bytes

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    metavar="DIR",
    help="The folder that holds sys/ and proc/: / for this host.",
)
@click.option("--kubelet-config", type=_FILE, metavar="FILE", help="The kubelet's configuration file.")
@click.option("--kubelet-config-dir", type=_FOLDER, metavar="DIR", help="Its drop-in folder, as --config-dir names it.")
@click.option("--pod-resources", type=_FILE, metavar="SOCKET", help="The kubelet's pod-resources socket.")
@click.option("--kubelet-state", type=_FOLDER, metavar="DIR", help="The kubelet's root directory.")
@click.option("--kubelet-version", metavar="VERSION", help="The kubelet's version, such as v1.36.3.")
@click.option("--node-name", metavar="NAME", help="The node's name; by default the host's or the folder's.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
def discover(root: Path, node_name: str | None, output: str, **parts: Path | str | None) -> None:
    """Print this host, or a recorded one, as a NodeTopology.

    What is not given, or cannot be read, is named in the conditions.
    """
    found = look(root, **parts, node_name=node_name or _name_of(root))  # type: ignore[arg-type]  # click's own names
    if not found.state.machine.cores:
        raise CannotAsk(
            f"--root {root}: no CPU that is online under sys/devices/system/cpu; does it hold sys/ and proc/?"
        )
    _PRINTERS[output](found)


def _name_of(root: Path) -> str:
    """A name that a Node could have."""
    name = socket.gethostname() if root == Path("/") else root.resolve().name
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "host"


def _print_json(found: Discovery) -> None:
    click.echo(json.dumps(found.node_topology(), indent=1))


def _print_yaml(found: Discovery) -> None:
    click.echo(yaml.safe_dump(found.node_topology(), sort_keys=False), nl=False)


def _print_table(found: Discovery) -> None:
    machine = found.state.machine
    rows = [("NUMA", "CPUS", "MEMORY", "HUGEPAGES", "DEVICES", "PCI")]
    for node in machine.numa_nodes:
        here = [device for device in found.state.devices if device.numa_nodes and node.id in device.numa_nodes]
        rows.append(
            (
                str(node.id),
                format_id_list(machine.cpus_of_numa_node.get(node.id, 0)) or "-",
                format_bytes(node.memory),
                ",".join(f"{pool.count}x{format_bytes(pool.size)}" for pool in node.hugepages if pool.count) or "-",
                str(len(here)),
                str(sum(device.numa_node == node.id for device in machine.pci_devices)),
            )
        )
    echo_table(rows)
    click.echo()
    echo_table([("CONDITION", "STATUS", "REASON", "MESSAGE"), *_condition_rows(found)])


def _condition_rows(found: Discovery) -> list[tuple[str, str, str, str]]:
    return [(each.type, each.status, each.reason, each.message) for each in found.conditions]


_PRINTERS: Mapping[str, Callable[[Discovery], None]] = {
    "table": _print_table,
    "json": _print_json,
    "yaml": _print_yaml,
}
