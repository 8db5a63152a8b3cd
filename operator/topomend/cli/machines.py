"""``machines``: list the machines that are known by name, with the source of each. Owns the output alone."""

from collections.abc import Sequence
from typing import Any

import click

from topomend.cli.input.did_you_mean import did_you_mean
from topomend.cli.output.console import echo, echo_data
from topomend.cli.output.failures import BadInput
from topomend.cli.output.formats import DOCUMENTS, NAME, WIDE, echo_document, output_option
from topomend.cli.output.table import echo_table
from topomend.model.quantity import format_bytes
from topomend.model.shapes.known_machines import MACHINES, KnownMachine, find_machine
from topomend.model.shapes.shape import parse_shape

_EXAMPLES = """\b
Examples:
  topomend machines
  topomend machines p5.48xlarge -o yaml               # its shape and its sources
  topomend simulate --node p5.48xlarge --pods pods.yaml --topology-manager-policy restricted
  topomend sandbox up --machine "DGX-H100 hugepages-1Gi:4"
"""


@click.command(epilog=_EXAMPLES)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option()
def machines(*, names: Sequence[str], output: str) -> None:
    """List the machines that simulate, lint and sandbox know by name.

    A name stands for a shape. Words after it change the shape. Facts are published ones; what is not published is left
    out, and -o wide says so.
    """
    chosen = tuple(map(_find, names)) or MACHINES
    if output in DOCUMENTS:
        echo_document([_record(machine) for machine in chosen], output)
    elif output == NAME:
        for machine in chosen:
            echo_data(machine.name)
    else:
        _print_table(chosen, wide=output == WIDE)


def _find(name: str) -> KnownMachine:
    machine = find_machine(name)
    if machine is None:
        near = did_you_mean(name, [each.name for each in MACHINES]) or "; topomend machines lists the names"
        raise BadInput(f"no machine {name!r} is known{near}")
    return machine


def _record(machine: KnownMachine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "description": machine.what,
        "shape": machine.shape,
        "sources": list(machine.sources),
        **({"notPublished": machine.open} if machine.open else {}),
    }


def _print_table(chosen: Sequence[KnownMachine], *, wide: bool) -> None:
    heading = ["NAME", "NUMA", "CPUS", "MEMORY", "DEVICES", "SOURCE"]
    echo_table([heading + ["NOT-PUBLISHED"] * wide, *(_row(machine) + [machine.open] * wide for machine in chosen)])
    if not wide:
        echo()
        echo("-o wide adds what is not published, -o yaml the shapes and every source.")


def _row(known: KnownMachine) -> list[str]:
    shape = parse_shape(known.shape)
    machine = shape.machine()
    cpuless = machine.memory_only.bit_count()
    counts = [f"{sum(count for _, count in places)} {resource}" for resource, places in shape.devices]
    return [
        known.name,
        f"{len(machine.numa_nodes) - cpuless}+{cpuless}" if cpuless else str(len(machine.numa_nodes)),
        str(machine.cpus.bit_count()),
        format_bytes(sum(node.memory for node in machine.numa_nodes)),
        ", ".join(counts) or "-",
        known.sources[0],
    ]
