"""``kubectl numa selftest``: try pods on a node, and compare what its kubelet does with what replay predicts.

Owns the flags, the question and the exit code. Leaves the trials to ``trials``, and the choice of pods and the
judgement to the room ``selftest``.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from topomend.cli.numa.cluster.cluster import Cluster, writing_cluster_options
from topomend.cli.numa.cluster.completion import complete_published_nodes
from topomend.cli.numa.selftest import printed
from topomend.cli.numa.selftest.trials import CLEAN, NotKnown, Outcome, Trials, check_node
from topomend.cli.output.console import confirm, echo, echo_lines
from topomend.cli.output.failures import NO, NOT_KNOWN, YES, BadInput, CannotAsk
from topomend.cli.output.formats import DOCUMENTS, JSON, TABLE, YAML, Printer, document_text, output_option
from topomend.kube.errors import APIError, Forbidden
from topomend.kube.resources import NAMESPACES
from topomend.runtime.interrupt import Interrupt
from topomend.selftest.cases import Choice, choose
from topomend.selftest.compare import Agreement, Seen, predict
from topomend.selftest.manifest import PREFIX, pod_manifest
from topomend.wire.group import SELFTEST_LABEL
from topomend.wire.pods.bound_pod import read_bound_pod

IMAGE = "registry.k8s.io/pause:3.10"

_EXAMPLES = """\b
Examples:
  kubectl numa selftest gpu-01 --dry-run               # the pods and predictions; creates nothing
  kubectl numa selftest gpu-01
  kubectl numa selftest gpu-01 --yes --report report.yaml
  kubectl numa selftest gpu-01 --image registry.example/pause:3.10
  kubectl numa selftest --clean                        # delete what an interrupted test has left
"""


@click.command(epilog=_EXAMPLES)
@click.argument("node", required=False, default="", metavar="[NODE]", shell_complete=complete_published_nodes)
@click.option("--dry-run", is_flag=True, help="Print the pods and what is predicted of each, and create nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before anything is created or deleted.")
@click.option("--image", metavar="IMAGE", default=IMAGE, show_default=True, help="The image of all containers.")
@click.option(
    "--timeout",
    "seconds",
    type=click.IntRange(1, 600),
    default=60,
    show_default=True,
    help="Seconds that each step of a case may take: the kubelet's answer, its publication, a deletion. "
    "A step waits as long for an agent or an API server that is away.",
)
@click.option(
    "--report",
    "report_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the contents of a bug report, in which other pods have no names.",
)
@click.option("--clean", is_flag=True, help="Delete the namespaces of all earlier tests, also of one under way.")
@output_option(TABLE, JSON, YAML)
@writing_cluster_options
@click.pass_context
def selftest(  # noqa: PLR0913  what it is told
    context: click.Context,
    /,
    *,
    cluster: Cluster,
    node: str,
    dry_run: bool,
    yes: bool,
    image: str,
    seconds: int,
    report_file: Path | None,
    clean: bool,
    output: str,
) -> None:
    """Try throw-away pods on NODE, and compare what its kubelet does with what is predicted.

    The pods are chosen by the node's policies and by what is free: exclusive CPUs up to a NUMA node's and one more,
    shared CPUs, init containers and sidecars, devices of each plugin, memory, huge pages. Each is predicted as simulate
    does before it is created. Verdict, CPUs, memory and devices are then compared with what the node's agent publishes;
    which of equal devices a kubelet takes is chance, and counts as such.

    One pod exists at a time, for seconds, in a namespace that is deleted at the end. None asks for more than is free in
    total. They are bound to NODE without a scheduler: nothing is evicted for them, and a cordoned node can be tried.
    Meanwhile a pod that is scheduled there may find too little and be refused, so cordon a node that is busy. A
    case that differs is tried three times; it counts as unsure if other pods came or left meanwhile. topomend explains
    and counts the refusals as those of any pod.

    Exits with 1 if a case differs, and with 3 if none does but one is unsure or was not tried. It needs the rights to
    create and delete namespaces and pods.
    """
    if clean:
        _clean(cluster, node, yes=yes, seconds=seconds)
        return
    if not node:
        raise BadInput("name the NODE to try; kubectl get ntopo lists those that can be")
    if report_file:
        _check_report(report_file, dry_run=dry_run)
    content = check_node(cluster, node)
    trials = Trials(cluster, node, image, seconds)
    try:
        seen = trials.look()
    except NotKnown as unknown:
        raise CannotAsk(f"{unknown}; see kubectl numa check") from unknown
    choice = choose(seen.state, seen.node, seen.used)
    if not choice.cases:
        raise CannotAsk(f"{node} has room for no pod of the test: {'; '.join(choice.left_out)}")
    if dry_run:
        _print_plan(seen, choice, image, output)
        return
    _warn_of_leftovers(cluster)
    _ask(f"Create {len(choice.cases)} pods on {node}, one at a time, in a namespace of their own?", yes=yes)
    server = cluster.client.version()
    outcomes = list[Outcome]()
    failure = _try_all(trials, choice, outcomes)
    answer = printed.document(
        node, outcomes, planned=len(choice.cases), left_out=choice.left_out, notes=[*trials.notes, *failure]
    )
    _print(seen, choice, outcomes, answer, output)
    if report_file:
        _write_report(report_file, printed.report(answer, outcomes, content, seen, server))
    if code := _exit_code(outcomes, len(choice.cases)):
        context.exit(code)


def _try_all(trials: Trials, choice: Choice, outcomes: list[Outcome]) -> list[str]:
    """Try all cases and add what became of each to ``outcomes``. Why that ended early, if it did."""
    with _interrupted_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as interrupt:
        try:
            with trials.in_a_namespace():
                for number, case in enumerate(choice.cases, start=1):
                    interrupt.raise_if_lost()
                    outcomes.append(trials.try_case(case))
                    result = outcomes[-1].judgement.agreement.value
                    echo(f"{number}/{len(choice.cases)} {case.name}: {result}", err=True)
                    if trials.lost and number < len(choice.cases):
                        return [f"the other cases were not tried: {trials.lost}"]
        except KeyboardInterrupt:
            return ["interrupted: the other cases were not tried"]
        except Forbidden:
            if not outcomes:  # whoever lacks a right is told the role
                _echo_notes(trials.notes)
                raise
            return ["a right was taken away meanwhile: the other cases were not tried"]
        except APIError as error:
            return [f"the other cases were not tried: {error}"]
    return []


@contextmanager
def _interrupted_by(*signals: signal.Signals) -> Iterator[Interrupt]:
    """Have these signals interrupt as Ctrl-C does, so that everything is cleaned up; not those that are ignored."""
    interrupt = Interrupt(KeyboardInterrupt)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: handler for number in signals if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, interrupt.came)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_code(outcomes: Sequence[Outcome], planned: int) -> int:
    agreements = {outcome.judgement.agreement for outcome in outcomes}
    if Agreement.DIFFERS in agreements:
        return NO
    return NOT_KNOWN if Agreement.UNSURE in agreements or len(outcomes) < planned else YES


def _print_plan(seen: Seen, choice: Choice, image: str, output: str) -> None:
    pairs = [
        (case, predict(seen, read_bound_pod(pod_manifest(case, seen.node, PREFIX + "name", image))))
        for case in choice.cases
    ]
    rows = [printed.planned_row(*pair) for pair in pairs]
    document = printed.planned_document(seen.node.name, pairs, choice.left_out)
    Printer(output, printed.PLANNED).first(rows, document)
    if output not in DOCUMENTS:
        _echo_left_out(choice)


def _print(seen: Seen, choice: Choice, outcomes: Sequence[Outcome], answer: Mapping[str, Any], output: str) -> None:
    Printer(output, printed.HEADING).first([printed.row(outcome) for outcome in outcomes], answer)
    if output in DOCUMENTS:
        return
    echo_lines(printed.reasons(outcomes))
    _echo_left_out(choice)
    _echo_notes(answer["notes"])
    echo(printed.summary(seen.state, outcomes, len(choice.cases)))


def _echo_notes(notes: Sequence[str]) -> None:
    for note in notes:
        echo(f"note: {note}", err=True)


def _echo_left_out(choice: Choice) -> None:
    echo_lines(f"not tried: {words}" for words in choice.left_out)


def _check_report(file: Path, *, dry_run: bool) -> None:
    """Raise BadInput for a report that could not be written in the end."""
    if dry_run:
        raise BadInput("--report tells what happened: give it without --dry-run")
    if not os.access(file if os.path.lexists(file) else file.parent, os.W_OK):
        raise BadInput(f"--report {file}: it cannot be written; name a file in a folder of yours")


def _write_report(file: Path, content: Mapping[str, Any]) -> None:
    try:
        file.write_text(document_text(content, YAML) + "\n")
    except OSError as error:
        raise CannotAsk(f"--report {file}: {error.strerror}") from error


def _ask(question: str, *, yes: bool) -> None:
    """Go on if the user agrees. Raises BadInput where nobody can be asked."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadInput("selftest asks before it creates or deletes anything: give --yes where nobody can answer")
    confirm(question)


def _clean(cluster: Cluster, node: str, *, yes: bool, seconds: int) -> None:
    if node:
        raise BadInput("--clean deletes what tests have left on all nodes: give it without NODE")
    left = _leftovers(cluster)
    if not left:
        echo("no test has left anything")
        return
    names = [content["metadata"]["name"] for content in left]
    _ask(f"Delete {', '.join(names)}?", yes=yes)
    trials = Trials(cluster, "", "", seconds)
    for name, content in zip(names, left, strict=True):
        is_gone = trials.delete_namespace(content)
        echo(f"{name} is {'deleted' if is_gone else 'being deleted'}")


def _warn_of_leftovers(cluster: Cluster) -> None:
    try:
        left = _leftovers(cluster)
    except APIError:
        return
    if left:
        names = ", ".join(content["metadata"]["name"] for content in left)
        echo(f"left by other tests, unless they are under way: {names}; {CLEAN} deletes them", err=True)


def _leftovers(cluster: Cluster) -> Sequence[dict[str, Any]]:
    found = cluster.client.list(NAMESPACES, labels=f"{SELFTEST_LABEL}=true").items
    return [content for content in found if content["metadata"]["name"].startswith(PREFIX)]
