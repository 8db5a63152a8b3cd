"""``python -m verify.bench.full_nodes``: how fast pods are let go where most nodes are full by totals.

A sandbox gets Nodes, NodeTopology objects and running pods, which are written into etcd. Ordinary pods fill most of the
nodes: their kubelets have free exclusive CPUs, their totals have none. Then the operator starts, knowing nothing, and
steered pods arrive. The API server's audit log gives how long each was held, how many are let go in a second, and how
often the operator listed the pods of a node. Exits with 1 if a target is missed.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from tests.audit_log import audited
from tests.processes import end
from verify.bench.etcd import Etcd
from verify.bench.operator_cost import NODE, STEERED, Crowd, Size, fill, make_crowd, wait_until_cached
from verify.contended.hold import Times, arrive, is_gated_at_birth, quantiles, times_of
from verify.contended.outcome import percentile
from verify.contended.run import DidNotStart, install, start_operator, wait
from verify.targets import Target, judge

from topomend.kube.client import connect
from topomend.sandbox import NodeSpec, Sandbox

P99, STEADY_LISTS = 1.0, 1.0

LET_GO_SECONDS = 180.0
"""How long the pods may take after the last one has arrived."""

STEADY_SECONDS = 15.0
"""For how long lists are counted after the last pod."""


@dataclass(frozen=True)
class Outcome:
    """What became of the pods.

    ``held`` are the seconds from creation to ungating, sorted; ``rate`` is how many were let go in a second. ``lists``
    are the times of lists of a node's pods until then, in seconds since 1970, ``later_lists`` how many came afterwards.
    """

    pods: int
    held: Sequence[float]
    rate: float
    lists: Sequence[float]
    later_lists: int

    @property
    def most_lists(self) -> int:
        """The most lists within a second of the clock."""
        return max(Counter(map(int, self.lists)).values(), default=0)


def main() -> int:
    """Measure, and compare with the targets."""
    options = _options()
    outcome = measure(
        options.nodes,
        options.full,
        pods=options.pods,
        rate=options.rate,
        pods_per_node=options.pods_per_node,
        log=options.log,
    )
    sys.stdout.write(
        f"{options.full} of {options.nodes} nodes are full; {outcome.pods} pods at {options.rate:g} a second\n"
        f"  created to ungated           {quantiles(outcome.held)}\n"
        f"  let go                       {outcome.rate:.1f} pods a second\n"
        f"  lists of a node's pods       {len(outcome.lists)}, at most {outcome.most_lists} in a second\n"
    )
    return judge(
        [
            Target("pods never let go", outcome.pods - len(outcome.held), 0),
            Target("held p99", percentile(outcome.held, 99), P99, "s"),
            Target("lists a second afterwards", outcome.later_lists / STEADY_SECONDS, STEADY_LISTS),
        ]
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m verify.bench.full_nodes", description=__doc__)
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--full", type=int, default=300, help="how many are full by totals (default: %(default)s)")
    parser.add_argument("--pods", type=int, default=100, help="how many steered pods arrive (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=10.0, help="how many in a second (default: %(default)s)")
    parser.add_argument("--pods-per-node", type=int, default=30, help="running pods (default: %(default)s)")
    parser.add_argument("--log", type=Path, help="keep the operator's log in this file")
    return parser.parse_args()


def measure(
    nodes: int,
    full: int,
    *,
    pods: int,
    rate: float,
    pods_per_node: int,
    steady_seconds: float = STEADY_SECONDS,
    log: Path | None = None,
) -> Outcome:
    """Let go ``pods`` that arrive at ``rate`` a second, on ``nodes`` of which so many are ``full`` by totals."""
    spec = NodeSpec.of_shape(NODE, "sockets:2 numa:1 cores:4 memory:8Gi", topology_manager_policy="single-numa-node")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topomend-full-nodes-")))
        sandbox = stack.enter_context(Sandbox.up([spec], audit=True))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        install(sandbox)
        crowd = make_crowd(sandbox, client, Size(nodes, pods_per_node))
        etcd = stack.enter_context(Etcd(sandbox.folder))
        fill(etcd, crowd)
        etcd.put(crowd.filling(number, _most_cpus(crowd)) for number in range(full))
        wait_until_cached(sandbox)
        log = log or folder / "operator.log"
        stack.callback(end, start_operator(sandbox.kubeconfig, log))
        for line in ("applied for new pods", "every kind is watched"):
            wait(f"the operator to say: {line}", partial(_says, log, line), 300)
        wait("new pods to be gated", partial(is_gated_at_birth, client, STEERED))
        names = arrive(client, rate, pods / rate, STEERED)
        assert sandbox.audit_log
        audit = sandbox.audit_log
        deadline, times = time.monotonic() + LET_GO_SECONDS, list[Times]()
        while len(times) < len(names) and time.monotonic() < deadline:
            time.sleep(1)
            times = [pod for pod in times_of(audit, names) if pod.created and pod.ungated]
        if not times:
            raise DidNotStart(f"none of {len(names)} pods was let go")
        lists = lists_of_nodes(audit)
        time.sleep(steady_seconds)
        held = sorted(pod.ungated - pod.created for pod in times)
        first, last = min(pod.created for pod in times), max(pod.ungated for pod in times)
        return Outcome(len(names), held, len(times) / (last - first), lists, len(lists_of_nodes(audit)) - len(lists))


def _says(log: Path, line: str) -> bool:
    return line in log.read_text()


def lists_of_nodes(log: Path) -> list[float]:
    """When the operator listed the pods of a node, in seconds since 1970."""
    return [
        datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        for event in audited(log)
        if event["verb"] == "list"
        and event.get("objectRef", {}).get("resource") == "pods"
        and "spec.nodeName" in event["requestURI"]
        and "status.phase" in event["requestURI"]
    ]


def _most_cpus(crowd: Crowd) -> str:
    """All of a node's CPUs that the running pods leave but half of one, which suffices for no steered pod."""
    return f"{1000 * 128 - 100 * crowd.size.pods_per_node - 500}m"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DidNotStart as error:
        sys.exit(f"{error}")
