"""``sandbox``: bring up, inspect and take down a real cluster on made-up NUMA machines.

Owns flags and output; the cluster is left to the room ``sandbox``.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from topomend.cli.failures import NO, BadInput, CannotAsk
from topomend.cli.kubelet_flags import read_options, read_reservations
from topomend.cli.table import echo_table
from topomend.discover import read_host
from topomend.model.bitmask import parse_id_list
from topomend.model.machine import Machine
from topomend.model.node_state import Device
from topomend.model.quantity import format_bytes
from topomend.model.shape import InvalidShape, Shape, parse_shape
from topomend.sandbox import InvalidNodeSpec, NodeSpec, Sandbox, SandboxError, registry
from topomend.sandbox.build import ensure_binary
from topomend.sandbox.plan import cluster_fingerprint

DEFAULT_SHAPE = "sockets:1 numa:2 cores:4 memory:8Gi"

POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]

_name_option = click.option(
    "--name", default="default", show_default=True, metavar="NAME", help="Which sandbox, where there are several."
)


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"not one of {', '.join(choices)}")
        return text

    return read


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "policy": ("topology_manager_policy", _one_of(POLICIES)),
    "scope": ("topology_manager_scope", _one_of(["container", "pod"])),
    "topology_manager_options": ("topology_manager_policy_options", read_options),
    "cpu_manager_policy": ("cpu_manager_policy", _one_of(["none", "static"])),
    "cpu_manager_options": ("cpu_manager_policy_options", read_options),
    "memory_manager_policy": ("memory_manager_policy", _one_of(["None", "Static"])),
    "reserved_cpus": ("reserved_cpus", parse_id_list),
    "reserved_memory": ("reserved_memory", read_reservations),
}
"""Each kubelet flag: the field of KubeletSettings that it sets, and its parser."""


@click.group()
def sandbox() -> None:
    """Run a real Kubernetes cluster on made-up NUMA machines, on this one.

    Control plane and kubelets are real and unchanged; only containers do nothing. The first time builds them, which
    takes about five minutes.
    """


@sandbox.command()
@_name_option
@click.option(
    "--nodes", type=click.IntRange(1, 64), help="How many nodes; more than machines repeats the last machine."
)
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="SHAPE|DIR",
    help=f"A shape, or a recorded tree with sys/ in it; once for each node. Default: {DEFAULT_SHAPE!r}.",
)
@click.option("--policy", multiple=True, metavar="POLICY", help=f"Topology Manager: {', '.join(POLICIES)}.")
@click.option("--scope", multiple=True, metavar="SCOPE", help="Topology Manager: container or pod.")
@click.option("--topology-manager-options", multiple=True, metavar="K=V,...")
@click.option("--cpu-manager-policy", multiple=True, metavar="POLICY", help="static (default) or none.")
@click.option("--cpu-manager-options", multiple=True, metavar="K=V,...")
@click.option("--memory-manager-policy", multiple=True, metavar="POLICY", help="Static (default) or None.")
@click.option("--reserved-cpus", multiple=True, metavar="CPULIST", help="Default: CPU 0.")
@click.option("--reserved-memory", multiple=True, metavar="RESERVATIONS", help="Default: 100Mi of the first NUMA node.")
@click.option("--audit", is_flag=True, help="Have the API server log who asked for what.")
@click.option("--topomend", is_flag=True, help="Install topomend in it, and run an agent a node and the operator.")
def up(
    *,
    name: str,
    nodes: int | None,
    machines: tuple[str, ...],
    audit: bool,
    topomend: bool,
    **settings: tuple[str, ...],
) -> None:
    """Bring a sandbox up and leave it running.

    Every flag of a kubelet is given once, for all nodes, or as often as --machine, in the same order.
    """
    try:
        specs = _specs(nodes, machines or (DEFAULT_SHAPE,), settings)
        registry.check_name(name)
    except (InvalidNodeSpec, InvalidShape, SandboxError) as error:
        raise BadInput(str(error)) from error
    if registry.is_up(name):
        _already_up(name, specs, audit=audit, topomend=topomend)
        return
    try:
        with _progress() as say:
            sandbox = Sandbox.up(specs, name=name, audit=audit, topomend=topomend, on_progress=say)
        sandbox.detach()
    except SandboxError as error:
        raise CannotAsk(str(error)) from error
    click.echo(f"Sandbox {name} is up: {', '.join(spec.name for spec in specs)}.")
    click.echo(f"export KUBECONFIG={sandbox.kubeconfig}")


@sandbox.command()
@_name_option
def down(*, name: str) -> None:
    """End every process of a sandbox and remove its files."""
    with _failures():
        existed = registry.take_down(name)
    click.echo(f"Sandbox {name} is down." if existed else f"There was no sandbox {name}.")


@sandbox.command()
@_name_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def status(context: click.Context, /, *, name: str, output: str) -> None:
    """Show the nodes and programs of a sandbox. Exits with 1 where a node is not ready or a program has ended."""
    with _failures():
        sandbox_status = registry.status(name)
    if output == "json":
        click.echo(json.dumps(asdict(sandbox_status), indent=1, default=str))
    else:
        _print_status(sandbox_status)
    if not all(node.ready for node in sandbox_status.nodes) or any(
        program.exit is not None for program in sandbox_status.programs
    ):
        context.exit(NO)


@sandbox.command()
@_name_option
def kubeconfig(*, name: str) -> None:
    """Print the path of the administrator's kubeconfig."""
    with _failures():
        click.echo(registry.status(name).kubeconfig)


@sandbox.command("exec", context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(*, name: str, node: str, command: tuple[str, ...]) -> None:
    """Run a command where the kubelet of NODE runs: it sees that machine's /sys, and /var/lib/kubelet is the kubelet's.

    For example: topomend sandbox exec node-1 -- lscpu
    """
    with _failures():
        prefix = registry.exec_prefix(name, node)
    sys.stdout.flush()
    os.execvp(prefix[0], [*prefix, *command])  # noqa: S606 - the user's own command, as an argument list


@sandbox.command(context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(*, name: str, arguments: tuple[str, ...]) -> None:
    """Run kubectl as the sandbox's administrator.

    For example: topomend sandbox kubectl -- get nodes
    """
    with _failures():
        registry.status(name)
        with _progress() as say:
            prefix = registry.kubectl_prefix(name, ensure_binary(say))
    os.execv(prefix[0], [*prefix, *arguments])  # noqa: S606 - the user's own arguments, as a list


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        raise CannotAsk(str(error)) from error


def _already_up(name: str, specs: Sequence[NodeSpec], *, audit: bool, topomend: bool) -> None:
    fingerprint = cluster_fingerprint(specs, audit=audit, topomend=topomend)
    with _failures():
        same = registry.description(name)["fingerprint"] == fingerprint
    if not same:
        raise BadInput(
            f"sandbox {name} is up already with other nodes or flags; end it with: "
            f"topomend sandbox down --name {name}, or choose another --name"
        )
    click.echo(f"Sandbox {name} is up already.")


def _specs(nodes: int | None, machines: Sequence[str], settings: dict[str, tuple[str, ...]]) -> list[NodeSpec]:
    """The nodes that the flags describe. Nodes beyond the last machine repeat it with its settings."""
    count = nodes or len(machines)
    if count < len(machines):
        raise BadInput(f"--nodes {count} is fewer than the {len(machines)} machines")
    for flag, texts in settings.items():
        if len(texts) not in (0, 1, len(machines)):
            raise BadInput(
                f"--{flag.replace('_', '-')} is given {len(texts)} times: give it once, or once for each --machine "
                f"({len(machines)})"
            )
    sources = [_machine(source) for source in machines]
    specs = []
    for number in range(count):
        position = min(number, len(machines) - 1)
        shape, machine, devices = sources[position]
        node_settings = {
            _SETTINGS[flag][0]: _read(flag, texts[position if len(texts) > 1 else 0])
            for flag, texts in settings.items()
            if texts
        }
        specs.append(NodeSpec.of_machine(f"node-{number + 1}", machine, devices, shape=shape, **node_settings))
    return specs


def _machine(source: str) -> tuple[Shape | None, Machine, Sequence[Device]]:
    folder = Path(source)
    if ":" in source and not folder.is_dir():
        shape = parse_shape(source)
        return shape, shape.machine(), shape.offered_devices()
    if not (folder / "sys").is_dir():
        raise BadInput(
            f"--machine {source!r} is neither a shape such as {DEFAULT_SHAPE!r} nor a folder that holds sys/"
        )
    host = read_host(folder)
    if not host.machine.cores:
        raise BadInput(f"--machine {source}: {'; '.join(host.problems) or 'no CPU is online there'}")
    return None, host.machine, ()


def _read(flag: str, text: str) -> Any:
    try:
        return _SETTINGS[flag][1](text)
    except ValueError as error:
        raise BadInput(f"--{flag.replace('_', '-')} {text!r}: {error}") from error


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Report progress on stderr: one changing line on a terminal, a line each elsewhere."""
    if not sys.stderr.isatty():
        yield lambda words: click.echo(words, err=True)
        return
    try:
        yield _replace_line
    finally:
        _replace_line("")


def _replace_line(words: str) -> None:
    """Overwrite the terminal's last line with ``words``, cut to its width: a second line would stay behind."""
    width = shutil.get_terminal_size().columns
    click.echo(f"\r\033[K{words[: width - 1]}", nl=False, err=True)


def _print_status(status: registry.Status) -> None:
    pids = {program.name: program.pid for program in status.programs}
    rows: list[tuple[str, ...]] = [("NODE", "READY", "NUMA", "CPUS", "MEMORY", "POLICY", "SCOPE", "KUBELET-PID")]
    rows += [
        (
            node.name,
            str(node.ready),
            str(node.numa_nodes),
            str(node.cpus),
            format_bytes(node.memory),
            node.policy,
            node.scope,
            str(pids.get(f"kubelet-{node.name}") or "-"),
        )
        for node in status.nodes
    ]
    echo_table(rows)
    click.echo()
    others = [program for program in status.programs if not program.name.startswith("kubelet-")]
    echo_table(
        [
            ("PROGRAM", "PID", "MEMORY", "RESTARTS", "METRICS"),
            *(
                (
                    program.name,
                    str(program.pid or "-"),
                    format_bytes(program.memory) if program.memory else "-",
                    str(program.restarts),
                    program.metrics or "-",
                )
                for program in others
            ),
        ]
    )
    click.echo(f"\nKUBECONFIG={status.kubeconfig}")
