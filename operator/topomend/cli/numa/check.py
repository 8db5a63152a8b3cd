"""``kubectl numa check``: whether topomend is installed, and whether every node's agent publishes a usable state.

A node whose kubelet would not start again with its state files is a problem too, before its next restart.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from topomend.cache.snapshot import Snapshot
from topomend.cli.numa.cluster.cluster import INSTALL, Cluster, cluster_options
from topomend.cli.output.console import echo
from topomend.cli.output.failures import NO, CannotAsk
from topomend.cli.output.formats import DOCUMENTS, NAME, echo_document, output_option
from topomend.kube.client import NODE_TOPOLOGIES, RELAUNCHES, Resource
from topomend.kube.errors import NotFound
from topomend.model.condition import WOULD_NOT_START_AGAIN
from topomend.wire.document import MalformedObject
from topomend.wire.group import GROUP
from topomend.wire.published.node_topology import read_conditions

POLL = 1.0
READY = "Ready"


_EXAMPLES = """\b
Examples:
  kubectl numa check
  kubectl numa check --wait 120      # after an installation: wait at most two minutes
  kubectl numa check -o json
"""


@dataclass(frozen=True)
class Problem:
    """One problem; ``node`` is empty if it concerns the cluster."""

    node: str
    text: str


@click.command(epilog=_EXAMPLES)
@click.option(
    "--wait", "seconds", type=click.IntRange(0, 3600), default=0, help="Seconds to wait for all problems to disappear."
)
@output_option()
@cluster_options
@click.pass_context
def check(context: click.Context, /, *, cluster: Cluster, seconds: int, output: str) -> None:
    """Check that topomend is installed and that every node publishes its topology; say what to do if not.

    Exits with 1 if there is a problem, and with 3 if the cluster has no node.
    """
    deadline = time.monotonic() + seconds
    while (problems := _problems(cluster)) and time.monotonic() < deadline:
        time.sleep(POLL)
    if output in DOCUMENTS:
        echo_document({"ok": not problems, "problems": [_record(problem) for problem in problems]}, output)
    elif output == NAME:
        for problem in problems:
            echo(f"node/{problem.node}" if problem.node else "cluster")
    else:
        for problem in problems:
            echo(f"{problem.node}: {problem.text}" if problem.node else problem.text)
        if not problems:
            echo("Every node publishes its topology.")
    if problems:
        context.exit(NO)


def _record(problem: Problem) -> dict[str, str | None]:
    return {"node": problem.node or None, "problem": problem.text}


def _problems(cluster: Cluster) -> list[Problem]:
    missing = [kind.plural for kind in (NODE_TOPOLOGIES, RELAUNCHES) if not _served(cluster, kind)]
    if missing:
        return [Problem("", f"{kind}.{GROUP}: the API server does not serve this kind; {INSTALL}") for kind in missing]
    snapshot = cluster.snapshot()
    if not snapshot.nodes:
        raise CannotAsk("the cluster has no nodes: there is nothing to check")
    restarts = {content["metadata"]["name"]: would_not_restart(content) for content in cluster.own(NODE_TOPOLOGIES)}
    return [
        problem
        for name in sorted(snapshot.nodes)
        if (problem := _problem_of(snapshot, name) or _restart_problem(name, restarts.get(name, "")))
    ]


def _restart_problem(node: str, why: str) -> Problem | None:
    return Problem(node, why) if why else None


def would_not_restart(content: Mapping[str, Any]) -> str:
    """Why the kubelet of a NodeTopology would not start again, and which file to delete; empty if it would."""
    try:
        conditions = read_conditions(content)
    except MalformedObject:
        return ""
    messages = [each.message for each in conditions if each.reason == WOULD_NOT_START_AGAIN and each.type != READY]
    return next(iter(messages), "")


def _problem_of(snapshot: Snapshot, node: str) -> Problem | None:
    why = snapshot.why_unknown(node)
    if not why:
        return None
    if node not in snapshot.publications and node not in snapshot.unreadable:
        why += "; see whether its agent runs: kubectl get pods -n topomend-agent -o wide"
    return Problem(node, why)


def _served(cluster: Cluster, kind: Resource) -> bool:
    try:
        cluster.client.list(kind)
    except NotFound:
        return False
    return True
