"""``simulate``: admit the pods of a trace on one node, and print its kubelet's answers. ``replay`` decides them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import yaml

from topomend.cache.topology_reader import why_not_ready
from topomend.cli.failures import NO, BadInput
from topomend.cli.kubelet_flags import read_options, read_reservations
from topomend.cli.manifests import read_documents
from topomend.cli.table import echo_table
from topomend.model.bitmask import format_id_list, members, parse_id_list
from topomend.model.node_state import NodeState
from topomend.model.quantity import format_bytes
from topomend.model.shape import InvalidShape, parse_shape
from topomend.model.verdict import ContainerPlacement, Verdict
from topomend.replay.admission import admit, release
from topomend.wire.document import MalformedObject
from topomend.wire.node_topology import read_node_topology
from topomend.wire.trace import PodEnd, read_trace
from topomend.wire.verdict import verdict_record

_OPTION_GATES = {
    f"{manager}Policy{level}Options": True
    for manager in ("CPUManager", "TopologyManager")
    for level in ("Alpha", "Beta")
}
"""A given option enables the feature gates that guard it."""


@click.command()
@click.option(
    "--node", required=True, metavar="FILE|SHAPE", help="A NodeTopology (YAML or JSON, - is stdin), or a shape."
)
@click.option(
    "--pods", required=True, metavar="FILE", help="Pods, Lists and PodEnds as YAML or JSON documents, - is stdin."
)
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True)
@click.option("--topology-manager-policy", metavar="POLICY", help="none, best-effort, restricted or single-numa-node.")
@click.option("--topology-manager-scope", metavar="SCOPE", help="container or pod.")
@click.option("--topology-manager-options", metavar="K=V,...", help="As the kubelet's flag.")
@click.option("--cpu-manager-policy", metavar="POLICY", help="none or static.")
@click.option("--cpu-manager-options", metavar="K=V,...", help="As the kubelet's configuration names them.")
@click.option("--memory-manager-policy", metavar="POLICY", help="None or Static.")
@click.option("--reserved-cpus", metavar="CPULIST", help="CPUs kept for the system, such as 0,32.")
@click.option("--reserved-memory", metavar="RESERVATIONS", help="Such as '0:memory=512Mi;1:memory=256Mi'.")
@click.pass_context
def simulate(context: click.Context, /, node: str, pods: str, output: str, **overrides: str | None) -> None:
    """Admit the pods of a trace one after another, as the node's kubelet would.

    A shape is one line such as "sockets:2 numa:2 cores:8 threads:2 memory:64Gi device:vendor.com/gpu@0=2,1=2". In a
    trace, {"kind": "PodEnd", "metadata": {"name": ...}} ends the life of a pod. Exits with 1 if a pod was refused. What
    the NodeTopology says is not known of the node goes to stderr.
    """
    if node == pods == "-":
        raise BadInput("--node - and --pods -: stdin can be read only once; put one of them into a file")
    state = _with_overrides(_read_node(node), overrides)
    verdicts = list(_admit_all(state, pods))
    _PRINTERS[output](verdicts)
    if not all(verdict.admitted for verdict in verdicts):
        context.exit(NO)


def _read_node(source: str) -> NodeState:
    if source != "-" and not Path(source).exists() and ":" in source:
        return _shape_state(source)
    documents = [content for content in read_documents(source, "--node") if content is not None]
    if len(documents) != 1:
        raise BadInput(f"--node {source}: {len(documents)} documents where one NodeTopology belongs")
    try:
        state, problem = read_node_topology(documents[0]), why_not_ready(documents[0])
    except MalformedObject as error:
        raise BadInput(f"--node {source}: {error}") from error
    if problem:
        click.echo(f"take this with care: {state.name}: {problem}", err=True)
    return state


def _shape_state(text: str) -> NodeState:
    try:
        shape = parse_shape(text)
    except InvalidShape as error:
        raise BadInput(f"--node {text!r} is no file, and as a shape: {error}") from error
    return NodeState(name="shape", machine=shape.machine(), devices=shape.offered_devices())


def _admit_all(state: NodeState, source: str) -> Iterator[Verdict]:
    try:
        for step in read_trace(read_documents(source, "--pods")):
            if isinstance(step, PodEnd):
                state = release(state, step.namespace, step.name)
                continue
            verdict, state = admit(state, step)
            yield verdict
    except MalformedObject as error:
        raise BadInput(f"--pods {source}: {error}") from error


def _with_overrides(state: NodeState, overrides: dict[str, str | None]) -> NodeState:
    """The node with the flags applied, as if its kubelet had been started with them. Raises BadInput."""
    given = {flag: text for flag, text in overrides.items() if text is not None}
    settings: dict[str, Any] = {_FIELDS[flag]: _read(flag, text) for flag, text in given.items()}
    if "cpu_manager_options" in given or "topology_manager_options" in given:
        settings["feature_gates"] = {**state.kubelet.feature_gates, **_OPTION_GATES}
    kubelet = replace(state.kubelet, **settings)
    if kubelet.cpu_manager_policy == "static" and kubelet.reserved_cpus is None and not kubelet.reserved_cpu_millis:
        kubelet = replace(kubelet, reserved_cpus=1)
    # The Memory Manager's state follows the old reservations. None has replay rebuild it from the blocks.
    memory = None if kubelet.reserved_memory != state.kubelet.reserved_memory else state.memory
    return replace(state, kubelet=kubelet, memory=memory)


_FIELDS = {
    "topology_manager_policy": "topology_manager_policy",
    "topology_manager_scope": "topology_manager_scope",
    "topology_manager_options": "topology_manager_policy_options",
    "cpu_manager_policy": "cpu_manager_policy",
    "cpu_manager_options": "cpu_manager_policy_options",
    "memory_manager_policy": "memory_manager_policy",
    "reserved_cpus": "reserved_cpus",
    "reserved_memory": "reserved_memory",
}


def _read(flag: str, text: str) -> Any:
    try:
        return _READERS.get(flag, str)(text)
    except ValueError as error:
        raise BadInput(f"--{flag.replace('_', '-')} {text!r}: {error}") from error


_READERS: dict[str, Callable[[str], Any]] = {
    "topology_manager_options": read_options,
    "cpu_manager_options": read_options,
    "reserved_cpus": parse_id_list,
    "reserved_memory": read_reservations,
}


def _print_json(verdicts: list[Verdict]) -> None:
    click.echo(json.dumps([verdict_record(verdict) for verdict in verdicts], indent=1))


def _print_yaml(verdicts: list[Verdict]) -> None:
    click.echo(yaml.safe_dump([verdict_record(verdict) for verdict in verdicts], sort_keys=False), nl=False)


def _print_table(verdicts: list[Verdict]) -> None:
    rows: list[tuple[str, ...]] = [("POD", "CONTAINER", "ADMITTED", "NUMA", "CPUS", "MEMORY", "DEVICES")]
    for verdict in verdicts:
        pod = f"{verdict.namespace}/{verdict.name}"
        rows += [_row(pod, container, verdict) for container in verdict.containers] or [
            (pod, "-", _yes(verdict.admitted), "-", "-", "-", "-")
        ]
    echo_table(rows)
    for verdict in verdicts:
        if not verdict.admitted:
            click.echo(f"{verdict.namespace}/{verdict.name}: {verdict.reason}: {verdict.message}")
        for unknown in verdict.unmodelled:
            click.echo(f"{verdict.namespace}/{verdict.name}: not modelled: {unknown}")


def _row(pod: str, container: ContainerPlacement, verdict: Verdict) -> tuple[str, ...]:
    return (
        pod,
        container.name,
        _yes(verdict.admitted),
        "any" if container.affinity is None else ",".join(map(str, members(container.affinity))),
        format_id_list(container.cpus) or "shared",
        ",".join(f"{format_bytes(block.size)}@{format_id_list(block.numa_nodes)}" for block in container.memory) or "-",
        ",".join(
            f"{devices.resource}={devices.count}@{format_id_list(devices.numa_nodes)}" for devices in container.devices
        )
        or "-",
    )


def _yes(admitted: bool) -> str:
    return "yes" if admitted else "no"


_PRINTERS: dict[str, Callable[[list[Verdict]], None]] = {
    "table": _print_table,
    "json": _print_json,
    "yaml": _print_yaml,
}
