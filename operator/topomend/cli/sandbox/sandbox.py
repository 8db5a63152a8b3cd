"""``sandbox``: bring up, inspect and take down a real cluster on made-up NUMA machines.

Owns flags and output; the cluster is left to the room ``sandbox``. The group is ``topomend sandbox``, and the whole of
the program ``topomend-sandbox``, which has a distribution of its own.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from topomend.cli.flags.kubelet_flags import read_options, read_reservations
from topomend.cli.input.made_machine import ANY_MACHINE, any_machine, warn_of_problems
from topomend.cli.lazy import OPERATOR
from topomend.cli.output.console import echo, echo_data, echo_progress
from topomend.cli.output.failures import NO, BadInput, CannotAsk
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
from topomend.model.bitmask import parse_id_list
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.model.quantity import format_bytes
from topomend.reconcile.settings import OBSERVE, RELAUNCH
from topomend.sandbox import InvalidNodeSpec, NodeSpec, Sandbox, SandboxError, registry
from topomend.sandbox.cluster import check_nodes
from topomend.sandbox.plan import cluster_fingerprint
from topomend.sandbox.releases.build import ensure_binary
from topomend.sandbox.releases.go_modules import NotARelease, minor_of

DEFAULT_SHAPE = "sockets:1 numa:2 cores:4 memory:8Gi"

POLICIES = ["none", "best-effort", "restricted", "single-numa-node"]

_name_option = click.option("--name", default="default", show_default=True, metavar="NAME", help="The sandbox's name.")


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"not one of {', '.join(choices)}")
        return text

    return read


def _release(text: str) -> str:
    minor_of(text)
    return text


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "policy": ("topology_manager_policy", _one_of(POLICIES)),
    "scope": ("topology_manager_scope", _one_of(["container", "pod"])),
    "topology_manager_options": ("topology_manager_policy_options", read_options),
    "cpu_manager_policy": ("cpu_manager_policy", _one_of(["none", "static"])),
    "cpu_manager_options": ("cpu_manager_policy_options", read_options),
    "memory_manager_policy": ("memory_manager_policy", _one_of(["None", "Static"])),
    "reserved_cpus": ("reserved_cpus", parse_id_list),
    "reserved_memory": ("reserved_memory", read_reservations),
    "kubelet_version": ("version", _release),
}
"""Each kubelet flag: the field of KubeletSettings that it sets, and its parser."""


_UP_EXAMPLES = """\b
Examples:
  topomend sandbox up --nodes 3 --topomend
  topomend sandbox up --kubernetes v1.32.5 --nodes 2
  topomend sandbox up --policy restricted \\
      --machine "sockets:2 numa:2 cores:8 threads:2 memory:64Gi device:vendor.com/gpu@0=2,1=2"
"""
_DOWN_EXAMPLES = """\b
Examples:
  topomend sandbox down
  topomend sandbox down --name other
"""
_LIST_EXAMPLES = """\b
Examples:
  topomend sandbox list
"""
_STATUS_EXAMPLES = """\b
Examples:
  topomend sandbox status
  topomend sandbox status -o json | jq ".programs[].name"
"""
_KUBECONFIG_EXAMPLES = """\b
Examples:
  export KUBECONFIG=$(topomend sandbox kubeconfig)
"""
_EXEC_EXAMPLES = """\b
Examples:
  topomend sandbox exec node-1 -- lscpu
  topomend sandbox exec node-1 -- cat /var/lib/kubelet/cpu_manager_state
"""
_KUBECTL_EXAMPLES = """\b
Examples:
  topomend sandbox kubectl -- get nodes
  topomend sandbox kubectl -- numa show
  topomend sandbox kubectl --name other -- apply -f pod.yaml
"""


class _Command(click.Command):
    """A command whose examples name the program that was called: this one is reached by two."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text((self.epilog or "").replace("topomend sandbox", _program(ctx)))


class _Group(click.Group):
    command_class = _Command


def _program(context: click.Context) -> str:
    """The words that call the group: ``topomend sandbox``, or ``topomend-sandbox``."""
    return context.parent.command_path if context.parent else context.command_path


@click.group(cls=_Group)
def sandbox() -> None:
    """Run a real Kubernetes cluster of made-up NUMA machines on this machine.

    The control plane and the kubelets are real and unmodified. Containers are not real and do nothing. The first run
    builds the programs, which takes about five minutes.
    """


@sandbox.command(epilog=_UP_EXAMPLES)
@_name_option
@click.option(
    "--nodes",
    type=click.IntRange(1, 64),
    help="The number of nodes. Default: one for each --machine. Further nodes repeat the last machine.",
)
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="SHAPE|NAME|FILE|DIR",
    help=f"{ANY_MACHINE} Repeat it for each node. Default: {DEFAULT_SHAPE!r}.",
)
@click.option("--policy", multiple=True, metavar="POLICY", help=f"Topology Manager: {', '.join(POLICIES)}.")
@click.option("--scope", multiple=True, metavar="SCOPE", help="Topology Manager: container or pod.")
@click.option("--topology-manager-options", multiple=True, metavar="K=V,...", help="Topology Manager policy options.")
@click.option("--cpu-manager-policy", multiple=True, metavar="POLICY", help="CPU Manager: static (default) or none.")
@click.option("--cpu-manager-options", multiple=True, metavar="K=V,...", help="CPU Manager policy options.")
@click.option(
    "--memory-manager-policy", multiple=True, metavar="POLICY", help="Memory Manager: Static (default) or None."
)
@click.option("--reserved-cpus", multiple=True, metavar="CPULIST", help="CPUs reserved for the system. Default: 0.")
@click.option(
    "--reserved-memory",
    multiple=True,
    metavar="RESERVATIONS",
    help="Memory reserved for the system. Default: 100Mi on the first NUMA node.",
)
@click.option(
    "--kubernetes",
    "version",
    default=DEFAULT_VERSION,
    show_default=True,
    metavar="VERSION",
    help="The release of the control plane and of the kubelets. A further release is built once, in about 5 minutes.",
)
@click.option(
    "--kubelet-version",
    multiple=True,
    metavar="VERSION",
    help="The release of the kubelet, up to three minor versions older. Default: that of --kubernetes.",
)
@click.option("--audit", is_flag=True, help="Write an audit log of the API server.")
@click.option("--topomend", is_flag=True, help="Also install topomend: run the operator and an agent for each node.")
@click.option(
    "--mode",
    type=click.Choice((OBSERVE, RELAUNCH)),
    help=f"With --topomend: the operator's mode; {OBSERVE} only explains refusals.",
)
def up(  # noqa: PLR0913  a flag each
    *,
    name: str,
    nodes: int | None,
    machines: tuple[str, ...],
    version: str,
    audit: bool,
    topomend: bool,
    mode: str | None,
    **settings: tuple[str, ...],
) -> None:
    """Start a sandbox and leave it running.

    Give each kubelet flag once for all nodes, or as often as --machine and in the same order.
    """
    if mode and not topomend:
        raise BadInput("--mode is that of topomend's operator: give --topomend as well")
    if topomend and (missing := OPERATOR.missing()):
        raise BadInput(
            f"--topomend needs {missing}, which is not installed here. "
            f"Install it with: pip install 'topomend[{OPERATOR.name}]'"
        )
    try:
        minor_of(version)
    except NotARelease as error:
        raise BadInput(f"--kubernetes: {error}") from error
    settings["kubelet_version"] = settings["kubelet_version"] or (version,)
    try:
        specs = _specs(nodes, machines or (DEFAULT_SHAPE,), settings)
        check_nodes(specs, version)
        registry.check_name(name)
    except (InvalidNodeSpec, SandboxError) as error:
        raise BadInput(str(error)) from error
    requested: dict[str, Any] = {"version": version, "audit": audit, "topomend": topomend, "mode": mode or ""}
    if registry.is_up(name):
        _already_up(name, cluster_fingerprint(specs, **requested))
        return
    try:
        with _progress() as report:
            sandbox = Sandbox.up(specs, name=name, **requested, on_progress=report)
        sandbox.detach()
    except SandboxError as error:
        raise CannotAsk(str(error)) from error
    echo(f"Sandbox {name} is up: {', '.join(spec.name for spec in specs)}.")
    echo(f"export KUBECONFIG={sandbox.kubeconfig}")


@sandbox.command(epilog=_DOWN_EXAMPLES)
@_name_option
def down(*, name: str) -> None:
    """End every process of a sandbox and remove its files."""
    with _failures():
        existed = registry.take_down(name)
    echo(f"Sandbox {name} is down." if existed else f"There was no sandbox {name}.")


@sandbox.command("list", epilog=_LIST_EXAMPLES)
@output_option(TABLE, JSON, YAML, NAME)
def list_sandboxes(*, output: str) -> None:
    """List the sandboxes of this user that are up."""
    found = {}
    for name in registry.names_up():
        with suppress(SandboxError):  # it is starting, or went down meanwhile
            found[name] = registry.description(name)
    if output == NAME:
        for name in found:
            echo(name)
        return
    records = [
        {
            "name": name,
            "version": facts["version"],
            "nodes": [node["name"] for node in facts["nodes"]],
            "kubeconfig": str(registry.kubeconfig(name)),
        }
        for name, facts in found.items()
    ]
    if output in DOCUMENTS:
        echo_document(records, output)
        return
    rows = [(each["name"], each["version"], str(len(each["nodes"])), each["kubeconfig"]) for each in records]
    echo_table([("NAME", "VERSION", "NODES", "KUBECONFIG"), *rows])


@sandbox.command(epilog=_STATUS_EXAMPLES)
@_name_option
@output_option()
@click.pass_context
def status(context: click.Context, /, *, name: str, output: str) -> None:
    """Show the nodes and programs of a sandbox.

    Exits with 1 if a node is not ready or a program has ended.
    """
    with _failures():
        sandbox_status = registry.status(name)
    if output in DOCUMENTS:
        echo_document(json.loads(json.dumps(asdict(sandbox_status), default=str)), output)
    elif output == NAME:
        for node in sandbox_status.nodes:
            echo(object_name("v1", "Node", node.name))
    else:
        _print_status(sandbox_status, wide=output == WIDE)
    if not all(node.ready for node in sandbox_status.nodes) or any(
        program.exit is not None for program in sandbox_status.programs
    ):
        context.exit(NO)


@sandbox.command(epilog=_KUBECONFIG_EXAMPLES)
@_name_option
def kubeconfig(*, name: str) -> None:
    """Print the path of the administrator's kubeconfig."""
    with _failures():
        echo_data(str(registry.status(name).kubeconfig))


@sandbox.command("exec", epilog=_EXEC_EXAMPLES, context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(*, name: str, node: str, command: tuple[str, ...]) -> None:
    """Run a command in the mount namespace of NODE's kubelet.

    The command sees the /sys of the made-up machine and the kubelet's /var/lib/kubelet.
    """
    with _failures():
        prefix = registry.exec_prefix(name, node)
    sys.stdout.flush()
    os.execvp(prefix[0], [*prefix, *command])  # noqa: S606 - the user's own command, as an argument list


@sandbox.command(epilog=_KUBECTL_EXAMPLES, context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(*, name: str, arguments: tuple[str, ...]) -> None:
    """Run kubectl as the sandbox's administrator. It finds the plugin: kubectl -- numa show."""
    with _failures():
        version = registry.status(name).version
        with _progress() as report:
            binary = str(ensure_binary(report, version))
        # Not by a flag: kubectl takes none before the name of a plugin.
        environment = _with_plugin({**os.environ, "KUBECONFIG": str(registry.kubeconfig(name))})
    os.execve(binary, [binary, "kubectl", *arguments], environment)  # noqa: S606 - the user's own arguments, as a list


def _with_plugin(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which kubectl finds the plugin ``kubectl-numa`` of this installation before any other."""
    programs = [file for file in metadata.files("topomend") or () if file.name == "kubectl-numa"]
    folders = [str(Path(file.locate()).resolve().parent) for file in programs]
    return {**environment, "PATH": os.pathsep.join([*folders, environment.get("PATH", os.defpath)])}


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        raise CannotAsk(str(error)) from error


def _already_up(name: str, fingerprint: Mapping[str, Any]) -> None:
    with _failures():
        same = registry.description(name)["fingerprint"] == fingerprint
    if not same:
        raise BadInput(
            f"sandbox {name} is up already with other nodes or flags; take it down with: "
            f"{_program(click.get_current_context())} down --name {name}, or choose another --name"
        )
    echo(f"Sandbox {name} is up already.")


def _specs(nodes: int | None, machines: Sequence[str], settings: dict[str, tuple[str, ...]]) -> list[NodeSpec]:
    """The nodes that the flags describe. Nodes beyond the last machine repeat it with its settings."""
    count = nodes or len(machines)
    if count < len(machines):
        raise BadInput(f"--nodes {count} is less than the number of --machine flags ({len(machines)})")
    for flag, texts in settings.items():
        if len(texts) not in (0, 1, len(machines)):
            raise BadInput(
                f"--{flag.replace('_', '-')} is given {len(texts)} times: give it once, or once for each --machine "
                f"({len(machines)})"
            )
    sources = [any_machine(source, "--machine") for source in machines]
    for source, made in zip(machines, sources, strict=True):
        warn_of_problems(made, source, "--machine")
    specs = []
    for number in range(count):
        position = min(number, len(machines) - 1)
        made = sources[position]
        node_settings = {
            _SETTINGS[flag][0]: _read(flag, texts[position if len(texts) > 1 else 0])
            for flag, texts in settings.items()
            if texts
        }
        name = f"node-{number + 1}"
        specs.append(NodeSpec.of_machine(name, made.machine, made.devices, made.claimable, **node_settings))
    return specs


def _read(flag: str, text: str) -> Any:
    try:
        return _SETTINGS[flag][1](text)
    except ValueError as error:
        raise BadInput(f"--{flag.replace('_', '-')} {text!r}: {error}") from error


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Report progress on stderr: one changing line on a terminal, a line each elsewhere."""
    if not sys.stderr.isatty():
        yield lambda words: echo(words, err=True)
        return
    try:
        yield echo_progress
    finally:
        echo_progress("")


def _print_status(status: registry.Status, *, wide: bool) -> None:
    pids = {program.name: program.pid for program in status.programs}
    rows: list[tuple[str, ...]] = [
        ("NODE", "READY", "VERSION", "NUMA", "CPUS", "MEMORY", "POLICY", "SCOPE", "KUBELET-PID")
    ]
    rows += [
        (
            node.name,
            str(node.ready),
            node.version,
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
    echo()
    others = [program for program in status.programs if wide or not program.name.startswith("kubelet-")]
    programs = [("PROGRAM", "PID", "MEMORY", "RESTARTS", "METRICS", "LOG"), *map(_program_row, others)]
    echo_table([row if wide else row[:-1] for row in programs])
    echo()
    echo(f"Logs are in {status.kubeconfig.with_name('logs')}")
    echo(f"KUBECONFIG={status.kubeconfig}")


def _program_row(program: registry.ProgramStatus) -> tuple[str, ...]:
    return (
        program.name,
        str(program.pid or "-"),
        format_bytes(program.memory) if program.memory else "-",
        str(program.restarts),
        program.metrics or "-",
        str(program.log),
    )
