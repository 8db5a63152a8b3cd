"""``kubectl numa relaunches``: list the relaunches of refused pods, each with its status."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from topomend.cli.numa.cluster.cluster import Cluster, cluster_options
from topomend.cli.numa.cluster.picture import Source
from topomend.cli.output.age import age
from topomend.cli.output.console import echo
from topomend.cli.output.formats import Printer, Row, output_option, watch_option
from topomend.cli.output.terminal import BAD, GOOD, PLAIN, QUIET, UNSURE, Style
from topomend.kube.resources import RELAUNCHES
from topomend.model.condition import Condition
from topomend.model.relaunch_record import Relaunch
from topomend.relaunch.conditions import NEVER, SUCCEEDED
from topomend.wire.document import MalformedObject
from topomend.wire.group import GROUP
from topomend.wire.relaunch_record import read_relaunch

HEADING = ("NAME", "POD", "REFUSED-BY", "REASON", "ATTEMPT", "STATUS", "NEW-POD", "AGE")
WIDE = ("STEP", "MESSAGE")
"""The columns of ``kubectl get relaunches``, which the CustomResourceDefinition names."""

_EXAMPLES = """\b
Examples:
  kubectl numa relaunches                 # those of the namespace, oldest first
  kubectl numa relaunches -A --watch
  kubectl numa relaunches -o wide         # with the status in words, and what to do
  kubectl numa relaunches -o json | jq '.items[].status.step'
"""


@click.command(epilog=_EXAMPLES)
@click.option("-A", "--all-namespaces", is_flag=True, help="The relaunches of every namespace.")
@output_option()
@watch_option
@cluster_options
def relaunches(*, cluster: Cluster, all_namespaces: bool, output: str, watch: bool) -> None:
    """List the relaunches of a namespace, oldest first, with the columns of kubectl get relaunches.

    STATUS is how far a relaunch is, or why its pod waits. -o json and yaml print the Relaunch objects.
    """
    namespace = "" if all_namespaces else cluster.namespace
    source = Source(RELAUNCHES, lambda content: [content], namespace)
    printer = Printer(output, (*(["NAMESPACE"] if all_namespaces else []), *HEADING), WIDE)
    for number, picture in enumerate(cluster.pictures([source], watch=watch)):
        listed = sorted(picture[RELAUNCHES], key=_age)
        rows = [row for content in listed if (row := _row(content, everywhere=all_namespaces))]
        if number:
            printer.next(rows)
        elif rows or not printer.for_people:
            printer.first(rows, {"apiVersion": "v1", "kind": "List", "items": listed})
        else:
            _echo_none(cluster, everywhere=all_namespaces)


def _age(content: Mapping[str, Any]) -> tuple[str, str]:
    return str(content["metadata"].get("creationTimestamp", "")), str(content["metadata"]["name"])


def _echo_none(cluster: Cluster, *, everywhere: bool) -> None:
    if not everywhere:
        cluster.check_namespace()
    echo("Nothing was relaunched." if everywhere else f"Nothing was relaunched in {cluster.namespace}.")


def _row(content: dict[str, Any], *, everywhere: bool) -> Row | None:
    name = content["metadata"]["name"]
    try:
        relaunch = read_relaunch(content)
    except MalformedObject as error:
        echo(f"relaunch {name} is skipped: {error}", err=True)
        return None
    cells = (*([relaunch.namespace] if everywhere else []), *_cells(relaunch))
    succeeded = relaunch.condition(SUCCEEDED)
    wide = (relaunch.step.value, (succeeded and succeeded.message) or "-")
    styles = {"STATUS": _style_of(succeeded)}
    return Row((relaunch.namespace, name), cells, content, f"relaunch.{GROUP}/{name}", wide, styles)


_STYLES: Mapping[str, Style] = {"True": GOOD, "False": QUIET, "Unknown": UNSURE}
"""Of a relaunch by its condition Succeeded: the pod runs again, it is not to run any more, or it waits."""


def _style_of(succeeded: Condition | None) -> Style:
    if succeeded is None:
        return PLAIN
    return BAD if succeeded.reason == NEVER else _STYLES.get(succeeded.status, PLAIN)


def _cells(relaunch: Relaunch) -> tuple[str, ...]:
    succeeded = relaunch.condition(SUCCEEDED)
    return (
        relaunch.name,
        relaunch.pod_name,
        relaunch.refused_by,
        relaunch.reason,
        str(relaunch.attempt),
        succeeded.reason if succeeded else "-",
        relaunch.new_name or "-",
        age(relaunch.creation_time, datetime.now(UTC)),
    )
