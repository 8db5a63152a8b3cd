"""``lint``: does a kubelet start with this configuration on that machine, and which traps are in it?

Owns reading the file and the machine, and the output. ``check.lint`` has the rules.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from topomend.check.facts import Configured
from topomend.check.finding import ORDER, Report, Severity, Subject
from topomend.check.lint import NOT_LOOKED_AT, correction, refusals
from topomend.check.lint import lint as judge_by_rules
from topomend.cli.input.made_machine import ANY_MACHINE, any_machine
from topomend.cli.input.performance_profile import NOT_LOOKED_AT as BESIDE_THE_PROFILE
from topomend.cli.input.performance_profile import PROFILE, kubelet_configuration, profile_in
from topomend.cli.kubelet_flags import read_version
from topomend.cli.numa.check.printed import document, print_report
from topomend.cli.output.console import echo, echo_lines
from topomend.cli.output.failures import NO, BadInput
from topomend.cli.output.formats import DOCUMENTS, JSON, TABLE, WIDE, YAML, echo_document, output_option
from topomend.discover.host_files import SourceUnreadable, read_bytes
from topomend.discover.kubelet_config import Judged, Written, judge
from topomend.discover.kubelet_config.documents import NotADocument, read_documents
from topomend.discover.kubelet_config.files import KIND, MAX_BYTES, drop_in_paths, file_of, read_file
from topomend.model.kubelet import DEFAULT_VERSION, MemoryReservation
from topomend.model.machine import Machine
from topomend.model.node_state import NodeState
from topomend.model.pasted_machine import PastedMachine
from topomend.replay.gates import minor_of
from topomend.replay.startup.configuration import Configuration, Host
from topomend.replay.startup.feature_gates import FeatureGates
from topomend.replay.startup.quantity import BINARY_SI, Quantity

_EXAMPLES = """\b
Examples:
  topomend lint kubelet.yaml --machine p5.48xlarge
  topomend lint kubelet.yaml --machine "sockets:2 numa:2 cores:16 threads:2 memory:64Gi" --kubelet-version v1.34
  topomend lint /var/lib/kubelet/config.yaml --kubelet-config-dir /etc/kubernetes/kubelet.conf.d --machine /
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
    type=click.Path(file_okay=False, path_type=Path),
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

    A PerformanceProfile of OpenShift is read as the KubeletConfiguration that its operator makes of it.
    An error has the kubelet's own words. If reservedMemory is not what a static Memory Manager demands to the byte, the
    correct block is printed. Exits with 1 after an error or a warning. -o wide adds each check's page, and what was not
    looked at.
    """
    try:
        version = read_version(kubelet_version)
    except ValueError as error:
        raise BadInput(f"--kubelet-version {kubelet_version!r}: {error}") from error
    subject, content = _kubelet_configuration("stdin" if file == "-" else file, _content(file))
    configured = _configured(subject, content, kubelet_config_dir, any_machine(machine, "--machine"), version)
    report = judge_by_rules(configured)
    fails = any(ORDER[finding.severity] <= ORDER[Severity.WARNING] for finding in report.findings)
    if output in DOCUMENTS:
        echo_document(_record(configured, report, fails=fails), output)
    else:
        _print(configured, report, output)
    if fails:
        context.exit(NO)


# Reading


def _content(file: str) -> bytes:
    if file != "-":
        try:
            return read_bytes(Path(file), MAX_BYTES)
        except SourceUnreadable as error:
            raise BadInput(f"{file} {error}") from error
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise BadInput(f"stdin is longer than {MAX_BYTES} bytes")
    return content


def _kubelet_configuration(name: str, content: bytes) -> tuple[Subject, bytes]:
    """What the file is, and the text that a kubelet reads of it. Raises BadInput for a wrong profile."""
    profile = profile_in(content)
    if profile is None:
        return Subject(KIND, name), content
    return Subject(PROFILE, name), json.dumps(kubelet_configuration(profile, name)).encode()


def _configured(subject: Subject, content: bytes, folder: Path | None, made: PastedMachine, version: str) -> Configured:
    """What is to be judged. Raises BadInput where the file is no configuration at all."""
    machine = made.machine
    host = Host(memory=sum(node.memory for node in machine.numa_nodes))
    try:
        drop_ins = None if folder is None else tuple(map(read_file, drop_in_paths(folder)))
        judged = judge(Written(file_of(Path(subject.name), content), drop_ins, {}), version, host)
    except SourceUnreadable as error:
        raise BadInput(str(error)) from error
    config = _configuration(judged, version, host)
    return Configured(
        subject,
        NodeState("node", machine, judged.settings, made.devices),
        config,
        _refusals(judged, config, machine),
        (*judged.remarks, *_further_documents(content)),
        is_read=not judged.wrong,
    )


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


def _print(configured: Configured, report: Report, output: str) -> None:
    version = configured.state.kubelet.version
    starts = "does not start" if configured.refusals else "starts"
    echo(f"A kubelet {version} {starts} with {configured.subject.name} on this machine, as far as both say.")
    print_report(report, output, nodes=0)
    if output == WIDE:
        echo_lines(f"not looked at: {each}" for each in _not_looked_at(configured))
    if corrected := correction(configured):
        echo()
        echo_lines(yaml.safe_dump({"reservedMemory": _block(corrected)}, sort_keys=False).splitlines())


def _record(configured: Configured, report: Report, *, fails: bool) -> dict[str, Any]:
    corrected = correction(configured)
    return {
        **document(report),
        "ok": not fails,
        "starts": not configured.refusals,
        "kubeletVersion": configured.state.kubelet.version,
        "reservedMemory": _block(corrected) if corrected else None,
        "notLookedAt": _not_looked_at(configured),
    }


def _not_looked_at(configured: Configured) -> list[str]:
    return [*NOT_LOOKED_AT, *([BESIDE_THE_PROFILE] if configured.subject.kind == PROFILE else [])]


def _block(reservations: tuple[MemoryReservation, ...]) -> list[dict[str, Any]]:
    """``reservedMemory`` as the configuration has it, in canonical amounts."""
    return [
        {"numaNode": each.numa_node, "limits": {each.resource: str(Quantity(each.size * 10**9, BINARY_SI))}}
        for each in reservations
    ]
