"""``simulate``: admit the pods of a trace on one node, and print its kubelet's answers. ``replay`` decides them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from topomend.cache.topology_reader import why_not_ready
from topomend.cli.failures import NO, BadInput
from topomend.cli.kubelet_flags import read_options, read_reservations
from topomend.cli.manifests import read_documents
from topomend.cli.output import DOCUMENTS, NAME, WIDE, echo_document, output_option
from topomend.cli.refusal_record import refusal_record
from topomend.cli.table import echo_table
from topomend.decide.cause import Cause
from topomend.decide.explanation import cause_of
from topomend.decide.remedy import Remedy, remedy_of
from topomend.decide.requested_alignment import why_not_aligned, wrong_value
from topomend.model.bitmask import format_id_list, members, parse_id_list
from topomend.model.node_state import NodeState
from topomend.model.pod import Pod
from topomend.model.quantity import format_bytes
from topomend.model.shape import InvalidShape, parse_shape
from topomend.model.verdict import ContainerPlacement, Verdict
from topomend.replay.admission import admit, release
from topomend.wire.document import MalformedObject
from topomend.wire.group import ALIGNMENT_ANNOTATION
from topomend.wire.node_topology import read_node_topology
from topomend.wire.trace import PodEnd, read_trace
from topomend.wire.verdict import verdict_record

_OPTION_GATES = {
    f"{manager}Policy{level}Options": True
    for manager in ("CPUManager", "TopologyManager")
    for level in ("Alpha", "Beta")
}
"""A given option enables the feature gates that guard it."""


_EXAMPLES = """\b
Examples:
  topomend simulate --node "numa:2 cores:8 memory:32Gi" --pods pods.yaml --cpu-manager-policy static
  kubectl get ntopo gpu-01 -o yaml | topomend simulate --node - --pods pod.yaml
  topomend simulate --node gpu-01.yaml --pods pods.yaml --topology-manager-policy restricted -o json
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--node", required=True, metavar="FILE|SHAPE", help="A NodeTopology (YAML or JSON; - is stdin), or a shape."
)
@click.option(
    "--pods", required=True, metavar="FILE", help="Pods, Lists and PodEnds as YAML or JSON documents; - is stdin."
)
@output_option()
@click.option("--topology-manager-policy", metavar="POLICY", help="none, best-effort, restricted or single-numa-node.")
@click.option("--topology-manager-scope", metavar="SCOPE", help="container or pod.")
@click.option("--topology-manager-options", metavar="K=V,...", help="The kubelet's topologyManagerPolicyOptions.")
@click.option("--cpu-manager-policy", metavar="POLICY", help="none or static.")
@click.option("--cpu-manager-options", metavar="K=V,...", help="The kubelet's cpuManagerPolicyOptions.")
@click.option("--memory-manager-policy", metavar="POLICY", help="None or Static.")
@click.option("--reserved-cpus", metavar="CPULIST", help="CPUs reserved for the system, such as 0,32.")
@click.option(
    "--reserved-memory",
    metavar="RESERVATIONS",
    help="Memory reserved on each NUMA node, such as '0:memory=512Mi;1:memory=256Mi'.",
)
@click.pass_context
def simulate(context: click.Context, /, node: str, pods: str, output: str, **overrides: str | None) -> None:
    """Admit pods one after another as the node's kubelet would, and print its answer to each.

    A shape describes a machine in one line: "sockets:2 numa:2 cores:8 threads:2 memory:64Gi
    device:vendor.com/gpu@0=2,1=2". Among the pods, a document {"kind": "PodEnd", "metadata": {"name": ...}} ends an
    earlier one. Exits with 1 if a pod is refused, or is not aligned as its annotation topomend.io/alignment asks. If
    the NodeTopology is not Ready, a warning on stderr says why.
    """
    if node == pods == "-":
        raise BadInput("--node - and --pods -: stdin can be read only once; put one of them into a file")
    state = _with_overrides(_read_node(node), overrides)
    answers = list(_admit_all(state, pods))
    if output in DOCUMENTS:
        echo_document([answer.record for answer in answers], output)
    elif output == NAME:
        _print_names(answers)
    else:
        _print_table(answers, wide=output == WIDE)
    if any(answer.not_aligned or not answer.verdict.admitted for answer in answers):
        context.exit(NO)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The kubelet's answer to one pod; of a refusal also the cause and what would be admitted instead.

    ``not_aligned`` is why an admitted pod is not aligned as its annotation asks; empty where it is, None where it does
    not ask.
    """

    verdict: Verdict
    cause: Cause | None = None
    remedy: Remedy | None = None
    not_aligned: str | None = None

    @property
    def record(self) -> dict[str, Any]:
        """The record that ``-o json`` prints."""
        record = verdict_record(self.verdict)
        if self.cause and self.remedy:
            record |= refusal_record(self.cause, self.remedy)
        if self.not_aligned is not None:
            record["aligned"] = not self.not_aligned
        return record


def _read_node(source: str) -> NodeState:
    if source != "-" and not Path(source).exists() and ":" in source:
        return _shape_state(source)
    documents = [content for content in read_documents(source, "--node") if content is not None]
    if len(documents) != 1:
        raise BadInput(f"--node {source}: {len(documents)} documents; give exactly one NodeTopology")
    try:
        state, problem = read_node_topology(documents[0]), why_not_ready(documents[0])
    except MalformedObject as error:
        raise BadInput(f"--node {source}: {error}") from error
    if problem:
        click.echo(f"warning: {state.name}: {problem}", err=True)
    return state


def _shape_state(text: str) -> NodeState:
    try:
        shape = parse_shape(text)
    except InvalidShape as error:
        raise BadInput(f"--node {text!r} is neither a file nor a valid shape: {error}") from error
    return NodeState(name="shape", machine=shape.machine(), devices=shape.offered_devices())


def _admit_all(state: NodeState, source: str) -> Iterator[_Answer]:
    try:
        for step in read_trace(read_documents(source, "--pods")):
            if isinstance(step, PodEnd):
                state = release(state, step.namespace, step.name)
                continue
            if wrong := wrong_value(step):
                click.echo(f"warning: {step.namespace}/{step.name}: {wrong}", err=True)
            verdict, after = admit(state, step)
            yield _admitted(after, step, verdict) if verdict.admitted else _refused(state, step, verdict)
            state = after
    except MalformedObject as error:
        raise BadInput(f"--pods {source}: {error}") from error


def _admitted(after: NodeState, pod: Pod, verdict: Verdict) -> _Answer:
    return _Answer(verdict, not_aligned=why_not_aligned(after, pod) if pod.single_numa_node else None)


def _refused(state: NodeState, pod: Pod, verdict: Verdict) -> _Answer:
    return _Answer(verdict, cause_of(verdict, state, pod), remedy_of(state, pod))


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


def _print_names(answers: list[_Answer]) -> None:
    """The pods that are admitted."""
    for answer in answers:
        if answer.verdict.admitted:
            click.echo(f"pod/{answer.verdict.name}")


def _print_table(answers: list[_Answer], *, wide: bool) -> None:
    verdicts = [answer.verdict for answer in answers]
    rows: list[tuple[str, ...]] = [("POD", "CONTAINER", "ADMITTED", "NUMA", "CPUS", "MEMORY", "DEVICES", "PREFERRED")]
    for verdict in verdicts:
        pod = f"{verdict.namespace}/{verdict.name}"
        rows += [_row(pod, container, verdict) for container in verdict.containers] or [
            (pod, "-", _yes(verdict.admitted), "-", "-", "-", "-", "-")
        ]
    echo_table([row if wide else row[:-1] for row in rows])
    for answer in answers:
        verdict, pod = answer.verdict, f"{answer.verdict.namespace}/{answer.verdict.name}"
        if not verdict.admitted:
            click.echo(f"{pod}: {verdict.reason}: {verdict.message}")
        if answer.cause:
            where = f"container {answer.cause.container}: " if answer.cause.container else ""
            click.echo(f"{pod}: {where}{answer.cause.text}")
        if answer.remedy and answer.remedy.words:
            click.echo(f"{pod}: {answer.remedy.words}")
        if answer.not_aligned:
            click.echo(f"{pod}: not on one NUMA node, as {ALIGNMENT_ANNOTATION} asks: {answer.not_aligned}")
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
        _yes(container.preferred),
    )


def _yes(admitted: bool) -> str:
    return "yes" if admitted else "no"
