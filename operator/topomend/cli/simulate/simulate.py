"""``simulate``: admit the pods of a trace on one node, and print its kubelet's answers. ``replay`` decides them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from topomend.alignment.requested import why_not_aligned, wrong_value
from topomend.cli.flags.kubelet_flags import DROP_IN_FOLDER
from topomend.cli.input.manifests import read_documents
from topomend.cli.input.unknown_fields import warn_of_unknown_fields
from topomend.cli.input.workload import PodNames, passed_over, same_name
from topomend.cli.output.console import echo
from topomend.cli.output.failures import NO, BadInput
from topomend.cli.output.formats import DOCUMENTS, NAME, WIDE, echo_document, output_option
from topomend.cli.output.refusal_record import refusal_record
from topomend.cli.output.table import echo_table
from topomend.cli.output.terminal import BAD, GOOD, Style
from topomend.cli.simulate.simulated_node import assumptions, how_to_add, read_simulation
from topomend.cli.simulate.trace import PassedOver, PodEnd, read_trace
from topomend.cli.simulate.verdict import verdict_record
from topomend.explain.cause import Cause
from topomend.explain.explanation import cause_of
from topomend.explain.remedy import Remedy, remedy_in
from topomend.model.bitmask import format_id_list, members
from topomend.model.pods.bound_pod import BoundPod
from topomend.model.quantity import format_bytes
from topomend.model.verdict import ContainerPlacement, Verdict
from topomend.replay.simulation import Simulation
from topomend.wire.document import MalformedObject
from topomend.wire.group import ALIGNMENT_ANNOTATION

_FILE = click.Path(dir_okay=False, path_type=Path)

_EXAMPLES = """\b
Examples:
  topomend simulate --node "numa:2 cores:8 memory:32Gi" --pods pods.yaml --cpu-manager-policy static
  kubectl get ntopo/gpu-01 node/gpu-01 -o yaml | topomend simulate --node - --pods deployment.yaml
  topomend simulate --node "numa:2 cores:8 memory:32Gi" --pods pods.yaml --kubelet-config kubelet.yaml
  topomend simulate --node gpu-01.yaml --pods pods.yaml --topology-manager-policy restricted -o json
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--node",
    required=True,
    metavar="FILE|SHAPE|NAME|DIR",
    help="A NodeTopology, beside it perhaps its Node and the node's pods (YAML or JSON; - is stdin); a shape; a name "
    "that topomend machines lists; a file with what lscpu -e and numactl -H print; an archive of topomend capture; or "
    "a folder with a recorded sys/.",
)
@click.option(
    "--pods",
    required=True,
    metavar="FILE",
    help="Pods, workloads, Lists and PodEnds as YAML or JSON documents; - is stdin.",
)
@click.option("--node-name", metavar="NAME", help="Which node, if --node has several NodeTopologies.")
@output_option()
@click.option("--kubelet-config", type=_FILE, metavar="FILE", help="The kubelet's configuration file.")
@click.option(
    "--kubelet-config-dir", type=DROP_IN_FOLDER, metavar="DIR", help="The kubelet's drop-in folder (--config-dir)."
)
@click.option("--kubelet-version", metavar="VERSION", help="The kubelet's version, such as v1.37.2.")
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
def simulate(  # noqa: PLR0913 - one parameter for each part of the question
    context: click.Context,
    /,
    *,
    node: str,
    pods: str,
    node_name: str | None,
    kubelet_config: Path | None,
    kubelet_config_dir: Path | None,
    output: str,
    **flags: str | None,
) -> None:
    """Admit pods one after another as the node's kubelet would, and print its answer to each.

    A kubelet asks its managers for CPUs, memory and devices first; then it checks the node's totals, and with the Node
    at hand its labels and taints. If something could not be checked, the answer says so.

    A shape describes a machine in one line: "sockets:2 numa:2 cores:8 threads:2 memory:64Gi
    device:vendor.com/gpu@0=2,1=2". Its kubelet has the default settings but for what the flags say. Among the pods, a
    document {"kind": "PodEnd", "metadata": {"name": ...}} ends an earlier one. Exits with 1 if a pod is refused, or is
    not aligned as its annotation topomend.io/alignment asks. If the NodeTopology is not Ready, a warning on stderr says
    why.
    """
    if node == pods == "-":
        raise BadInput("--node - and --pods -: stdin can be read only once; put one of them into a file")
    given = {flag: text for flag, text in flags.items() if text is not None}
    config = kubelet_config, kubelet_config_dir
    simulation = read_simulation(node, node_name, config, given)
    answers = _admit_all(simulation, pods)
    if output in DOCUMENTS:
        echo_document([answer.record for answer in answers], output)
    elif output == NAME:
        _print_names(answers)
    else:
        _print_table(answers, wide=output == WIDE)
    missing = dict.fromkeys(each for answer in answers for each in answer.missing)
    for note in (*assumptions(node, config, given), *how_to_add(node, missing, simulation)):
        echo(f"note: {note}", err=True)
    if any(answer.not_aligned or not answer.verdict.admitted for answer in answers):
        context.exit(NO)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The kubelet's answer to one pod; of a refusal also the cause and what would be admitted instead.

    ``not_aligned`` is why an admitted pod is not aligned as its annotation asks; empty where it is, None where it does
    not ask. ``not_checked`` is what the answer leaves out, ``missing`` the resources of it that the node is not known
    to have.
    """

    verdict: Verdict
    cause: Cause | None = None
    remedy: Remedy | None = None
    not_aligned: str | None = None
    not_checked: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def record(self) -> dict[str, Any]:
        """The record that ``-o json`` prints."""
        record = verdict_record(self.verdict)
        if self.cause and self.remedy:
            record |= refusal_record(self.cause, self.remedy)
        if self.not_aligned is not None:
            record["aligned"] = not self.not_aligned
        if self.not_checked:
            record["notChecked"] = list(self.not_checked)
        return record


def _admit_all(simulation: Simulation, source: str) -> list[_Answer]:
    trace = _Trace(simulation, f"--pods {source}", PodNames(bound.key for bound in simulation.kubelet.pods))
    try:
        documents = list(read_documents(source, "--pods"))
        warn_of_unknown_fields(documents, trace.where)
        answers = list(trace.answers(documents))
    except MalformedObject as error:
        raise BadInput(f"{trace.where}: {error}") from error
    if trace.others and not answers:
        raise BadInput(f"{trace.where}: {', '.join(trace.others)}, and no pod; give at least one")
    if trace.others:
        echo(f"{trace.where}: {passed_over(trace.others)}", err=True)
    return answers


@dataclass
class _Trace:
    """A trace that is played: the ``simulation`` so far, which pods it has ``admitted``, and its ``others``: no pods.

    ``where`` names the file in warnings.
    """

    simulation: Simulation
    where: str
    names: PodNames
    admitted: set[tuple[str, str]] = field(default_factory=set)
    others: list[str] = field(default_factory=list)

    def answers(self, documents: Iterable[Any]) -> Iterator[_Answer]:
        """The answers in order. Raises MalformedObject."""
        for step in read_trace(documents, self.names):
            if isinstance(step, PassedOver):
                self.others.append(step.shown)
            elif isinstance(step, PodEnd):
                self._end(step)
            else:
                yield self._answer(step)

    def _end(self, end: PodEnd) -> None:
        if end.key not in self.names.taken and end.key not in self.names.on_node:
            echo(f"warning: {self.where}: PodEnd {end.namespace}/{end.name} ends no pod", err=True)
        self.simulation = self.simulation.after(*end.key)
        self.names.taken.discard(end.key)
        self.admitted.discard(end.key)

    def _answer(self, bound: BoundPod) -> _Answer:
        if bound.key in self.admitted:
            # Replay would take the pod for the one that runs, and give it the same once more.
            raise MalformedObject(same_name(2, *bound.key))
        if wrong := wrong_value(bound.pod):
            echo(f"warning: {bound.pod.namespace}/{bound.pod.name}: {wrong}", err=True)
        before = self.simulation
        verdict, self.simulation = before.answer(bound)
        if not verdict.admitted:
            return _refused(before, bound, verdict)
        self.admitted.add(bound.key)
        return _admitted(self.simulation, bound, verdict)


def _admitted(after: Simulation, bound: BoundPod, verdict: Verdict) -> _Answer:
    pod = bound.pod
    not_aligned = why_not_aligned(after.kubelet.state, pod) if pod.single_numa_node else None
    return _with_left_out(_Answer(verdict, not_aligned=not_aligned), after, bound)


def _refused(simulation: Simulation, bound: BoundPod, verdict: Verdict) -> _Answer:
    cause, remedy = _cause(verdict, simulation, bound), remedy_in(simulation, bound, verdict)
    return _with_left_out(_Answer(verdict, cause, remedy), simulation, bound)


def _with_left_out(answer: _Answer, simulation: Simulation, bound: BoundPod) -> _Answer:
    not_checked = tuple(simulation.not_checked(bound))
    return replace(answer, not_checked=not_checked, missing=tuple(simulation.missing(bound)) if not_checked else ())


def _cause(verdict: Verdict, simulation: Simulation, bound: BoundPod) -> Cause:
    cause = cause_of(verdict, simulation.kubelet.state, bound.pod)
    flag = next((flag for words, flag in _FLAGS_FOR if words in verdict.message), "")
    return replace(cause, remedy=f"give {flag}, or correct its configuration") if flag else cause


_FLAGS_FOR = (
    ("specify the system reserved memory", "--reserved-memory, such as '0:memory=512Mi'"),
    ("unable to determine reserved CPU", "--reserved-cpus, such as 0"),
)
"""What a kubelet says that does not start, and the flag that gives it what it lacks."""


def _print_names(answers: list[_Answer]) -> None:
    """The pods that are admitted."""
    for answer in answers:
        if answer.verdict.admitted:
            echo(f"pod/{answer.verdict.name}")


def _print_table(answers: list[_Answer], *, wide: bool) -> None:
    verdicts = [answer.verdict for answer in answers]
    styles: list[Mapping[str, Style]] = []
    rows: list[tuple[str, ...]] = [("POD", "CONTAINER", "ADMITTED", "NUMA", "CPUS", "MEMORY", "DEVICES", "PREFERRED")]
    for verdict in verdicts:
        pod = f"{verdict.namespace}/{verdict.name}"
        rows += [_row(pod, container, verdict) for container in verdict.containers] or [
            (pod, "-", _yes(verdict.admitted), "-", "-", "-", "-", "-")
        ]
        styles += [{"ADMITTED": GOOD if verdict.admitted else BAD}] * (len(rows) - 1 - len(styles))
    echo_table([row if wide else row[:-1] for row in rows], styles)
    for answer in answers:
        verdict, pod = answer.verdict, f"{answer.verdict.namespace}/{answer.verdict.name}"
        if not verdict.admitted:
            echo(f"{pod}: {verdict.reason}: {verdict.message}")
        if answer.cause:
            where = f"container {answer.cause.container}: " if answer.cause.container else ""
            echo(f"{pod}: {where}{answer.cause.text}")
        if answer.remedy and answer.remedy.words:
            echo(f"{pod}: {answer.remedy.words}")
        if answer.not_aligned:
            echo(f"{pod}: not on one NUMA node, as {ALIGNMENT_ANNOTATION} asks: {answer.not_aligned}")
        for unknown in verdict.unmodelled:
            echo(f"{pod}: not modelled: {unknown}")
    for left_out in dict.fromkeys(each for answer in answers for each in answer.not_checked):
        echo(f"not checked: {left_out}")


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
