"""``lint``: does a kubelet start with this configuration on that machine, and which traps are in it?

Owns reading the file and the machine, and the output. ``check.lint`` has the rules.
"""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click
import yaml

from topomend.check.facts import Configured
from topomend.check.finding import ORDER, Report, Severity, Subject
from topomend.check.rules.lint import FLAGS, NOT_LOOKED_AT, correction, refusals
from topomend.check.rules.lint import lint as judge_by_rules
from topomend.cli.flags.kubelet_flags import DROP_IN_FOLDER, read_version
from topomend.cli.input.did_you_mean import nearest
from topomend.cli.input.k3s_config import of_k3s_config
from topomend.cli.input.kubelet_input import KubeletInput
from topomend.cli.input.made_machine import ANY_MACHINE, any_machine, warn_of_problems
from topomend.cli.input.manifests import standard_input
from topomend.cli.input.node_config import of_node_config
from topomend.cli.input.performance_profile import of_profile
from topomend.cli.numa.check.printed import document, print_report
from topomend.cli.output.console import echo, echo_lines
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput
from topomend.cli.output.formats import DOCUMENTS, JSON, TABLE, WIDE, YAML, echo_document, output_option
from topomend.discover.documents.read import read_documents
from topomend.discover.documents.value import NotADocument
from topomend.discover.host_files import SourceUnreadable, read_bytes
from topomend.discover.kubelet_config import MAX_SENTENCES, Judged, Written, folder_remarks, judge
from topomend.discover.kubelet_config.files import KIND, MAX_BYTES, ConfigFile, drop_in_paths, file_of, read_file
from topomend.discover.kubelet_config.flag_names import flag_names, unknown_flags
from topomend.discover.kubelet_config.kubelet_process import Flags
from topomend.model.machine import Machine
from topomend.model.nodes.kubelet import DEFAULT_VERSION, MemoryReservation
from topomend.model.nodes.node_state import NodeState
from topomend.model.shapes.pasted_machine import PastedMachine
from topomend.replay.gates import minor_of
from topomend.replay.startup.configuration import Configuration, Host
from topomend.replay.startup.feature_gates import FeatureGates
from topomend.replay.startup.quantity import BINARY_SI, Quantity

_STREAM = re.compile(r"/dev/stdin|/(dev|proc/self)/fd/[0-9]+")
"""A shell's ``<(COMMAND)``, a pipe that the command writes. Any other pipe could have nobody who writes it."""

_EXAMPLES = """\b
Examples:
  topomend lint kubelet.yaml --machine p5.48xlarge
  topomend lint kubelet.yaml --machine "sockets:2 numa:2 cores:16 threads:2 memory:64Gi" --kubelet-version v1.34
  topomend lint /var/lib/kubelet/config.yaml --kubelet-config-dir /etc/kubernetes/kubelet.conf.d --machine /
  topomend lint nodeconfig.yaml --machine p5.48xlarge                        # of Amazon EKS, or its user data
  topomend lint /etc/rancher/k3s/config.yaml --machine / --kubelet-version v1.35
  kubectl -n kube-system get cm kubelet-config -o jsonpath={.data.kubelet} | topomend lint - --machine gpu-01.tar.gz
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", metavar="FILE")
@click.option("--machine", required=True, metavar="SHAPE|NAME|FILE|DIR", help=ANY_MACHINE)
@click.option(
    "--kubelet-version", default=DEFAULT_VERSION, show_default=True, metavar="VERSION", help="The kubelet's version."
)
@click.option(
    "--kubelet-config-dir",
    type=DROP_IN_FOLDER,
    metavar="DIR",
    help="The kubelet's drop-in folder (--config-dir).",
)
@output_option(TABLE, WIDE, JSON, YAML)
@click.pass_context
def lint(  # noqa: PLR0913 - one parameter for each part of the question
    context: click.Context,
    /,
    *,
    file: str,
    machine: str,
    kubelet_version: str,
    kubelet_config_dir: Path | None,
    output: str,
) -> None:
    """Say whether a kubelet starts with the KubeletConfiguration in FILE (- is stdin) on a machine, and name traps.

    A PerformanceProfile of OpenShift, a NodeConfig of Amazon EKS and the config.yaml of k3s and RKE2 are read as the
    configuration and flags that come of them.
    An error has the kubelet's own words. If reservedMemory is not what a static Memory Manager demands to the byte, the
    correct block is printed. Exits with 1 after an error or a warning, else with 3 if the machine could not be read
    completely. -o wide adds each check's page, and what was not looked at.
    """
    try:
        version = read_version(kubelet_version)
    except ValueError as error:
        raise BadInput(f"--kubelet-version {kubelet_version!r}: {error}") from error
    made, name, content = any_machine(machine, "--machine"), _name(file), _content(file)
    warn_of_problems(made, machine, "--machine")
    try:
        read = _input(name, content, machine, made.machine, version)
        further = _further_documents(content) if read.subject.kind == KIND else ()
        passed_over = [*further, *folder_remarks(kubelet_config_dir)]
        configured = _configured(read, _drop_ins(read, kubelet_config_dir), made, version, passed_over)
    except SourceUnreadable as error:
        raise BadInput(str(error)) from error
    report = judge_by_rules(configured)
    code, not_looked_at = _code(report, made), _not_looked_at(read, made)
    if output in DOCUMENTS:
        echo_document(_record(configured, report, not_looked_at, ok=code == YES), output)
    else:
        _print(configured, report, not_looked_at, output)
    context.exit(code)


# Reading


def _content(file: str) -> bytes:
    try:
        if file == "-":
            return _of_stream(standard_input())
        if not _STREAM.fullmatch(file):
            return read_bytes(Path(file), MAX_BYTES)
        with open(file, "rb") as stream:  # noqa: PTH123 - it has no path of its own
            return _of_stream(stream)
    except SourceUnreadable as error:
        raise BadInput(f"{_name(file)} {error}") from error
    except OSError as error:
        raise BadInput(f"{_name(file)} cannot be read ({error.strerror or error})") from error


def _of_stream(stream: BinaryIO) -> bytes:
    content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise SourceUnreadable(f"is longer than {MAX_BYTES} bytes")
    return content


def _name(file: str) -> str:
    return "stdin" if file == "-" else file


def _input(name: str, content: bytes, machine_name: str, machine: Machine, version: str) -> KubeletInput:
    """What the kubelet reads of the file. Raises BadInput, SourceUnreadable."""
    minor = minor_of(version)
    return (
        of_profile(name, content)
        or of_node_config(name, content, machine_name, machine.cpus.bit_count(), minor)
        or of_k3s_config(name, content, minor)
        or KubeletInput(Subject(KIND, name), file_of(Path(name), content))
    )


def _drop_ins(read: KubeletInput, folder: Path | None) -> tuple[ConfigFile, ...] | None:
    """The drop-ins in their order: those of the folder, and those that a program would write there."""
    if folder is None:
        return tuple(read.drop_ins.values()) or None
    found = {str(path.relative_to(folder)): read_file(path) for path in drop_in_paths(folder)}
    files = {**read.drop_ins, **found}
    return tuple(files[name] for name in sorted(files, key=_in_a_walk))


def _in_a_walk(name: str) -> list[bytes]:
    """Where a file is met: folders are walked by the bytes of their entries' names."""
    return [os.fsencode(part) for part in Path(name).parts]


def _configured(
    read: KubeletInput,
    drop_ins: tuple[ConfigFile, ...] | None,
    made: PastedMachine,
    version: str,
    passed_over: Sequence[str],
) -> Configured:
    """What is to be judged. Raises SourceUnreadable where a file is no configuration at all."""
    machine = made.machine
    host = Host(memory=sum(node.memory for node in machine.numa_nodes))
    flags = read.flags or {}
    judged = judge(Written(read.file, drop_ins, flags), version, host)
    config = _configuration(judged, version, host)
    return Configured(
        read.subject,
        NodeState("node", machine, judged.settings, made.devices),
        config,
        (*_unknown(flags, minor_of(version)), *_refusals(judged, config, machine)),
        (*judged.remarks, *passed_over),
        is_read=not judged.wrong,
    )


def _unknown(flags: Flags, minor: int) -> Iterator[str]:
    """The kubelet parses its flags before anything else, and ends at the first that it does not know."""
    for name, sentence in islice(unknown_flags(flags, minor), MAX_SENTENCES):
        near = nearest(name, flag_names(minor))
        yield f"{sentence}: did you mean --{near}?" if near else sentence


def _refusals(judged: Judged, config: Configuration, machine: Machine) -> tuple[str, ...]:
    """Why the kubelet does not start. A value that could not be read stands for another, which nobody judges."""
    if judged.wrong:
        return judged.wrong
    if judged.sentences and judged.wrong_settings:
        return judged.sentences
    return refusals(config, judged.settings, machine, judged.sentences) or judged.wrong_settings


def _configuration(judged: Judged, version: str, host: Host) -> Configuration:
    minor = minor_of(version)
    return Configuration(judged.content, minor, FeatureGates(minor, judged.content.get("featureGates") or {}), host)


def _further_documents(content: bytes) -> Iterator[str]:
    documents = read_documents(content)
    next(documents, None)
    try:
        further = next(documents, None)
    except NotADocument:
        further = None
    if further is not None:
        yield "the file has several documents, and the kubelet reads the first alone"


# Printing


def _print(configured: Configured, report: Report, not_looked_at: Sequence[str], output: str) -> None:
    version = configured.state.kubelet.version
    starts = "does not start" if configured.refusals else "starts"
    echo(f"A kubelet {version} {starts} with {configured.subject.name} on this machine, as far as both say.")
    print_report(report, output, nodes=0)
    if output == WIDE:
        echo_lines(f"not looked at: {each}" for each in not_looked_at)
    if corrected := correction(configured):
        echo()
        echo_lines(yaml.safe_dump({"reservedMemory": _block(corrected)}, sort_keys=False).splitlines())


def _record(configured: Configured, report: Report, not_looked_at: Sequence[str], *, ok: bool) -> dict[str, Any]:
    corrected = correction(configured)
    return {
        **document(report),
        "ok": ok,
        "starts": not configured.refusals,
        "kubeletVersion": configured.state.kubelet.version,
        "reservedMemory": _block(corrected) if corrected else None,
        "notLookedAt": not_looked_at,
    }


def _code(report: Report, made: PastedMachine) -> int:
    if any(ORDER[finding.severity] <= ORDER[Severity.WARNING] for finding in report.findings):
        return NO
    return NOT_KNOWN if made.problems else YES


def _not_looked_at(read: KubeletInput, made: PastedMachine) -> list[str]:
    return [*made.problems, *([FLAGS] if read.flags is None else []), *NOT_LOOKED_AT, *read.unknown]


def _block(reservations: tuple[MemoryReservation, ...]) -> list[dict[str, Any]]:
    """``reservedMemory`` as the configuration has it, in canonical amounts."""
    return [
        {"numaNode": each.numa_node, "limits": {each.resource: str(Quantity(each.size * 10**9, BINARY_SI))}}
        for each in reservations
    ]
