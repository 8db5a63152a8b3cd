"""``python -m verify.bench.check_cost``: how long ``kubectl numa check`` takes on 100 and on 1,000 nodes.

A sandbox gets Nodes, NodeTopology objects and running pods, which are written into etcd, and topomend's manifests
without its workloads: every check is done, and those of operator and agents have much to say. The time is that of the
whole program, the start of Python included; the longest of three runs counts. Exits with 1 if a target is missed.
"""

import argparse
import json
import sys
from collections import Counter
from contextlib import ExitStack

from verify.bench.etcd import Etcd
from verify.bench.operator_cost import NODE, Size, fill, make_crowd, wait_until_cached
from verify.bench.plugin import timed
from verify.contended.run import install
from verify.targets import Target, judge

from topomend.kube.client import connect
from topomend.sandbox import NodeSpec, Sandbox

LIMITS = {100: 5.0, 1000: 15.0}
"""Seconds, by the number of nodes."""

RUNS = 3


def main() -> int:
    """Measure each size, and compare with the limits."""
    parser = argparse.ArgumentParser(prog="python -m verify.bench.check_cost", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=sorted(LIMITS))
    parser.add_argument("--pods-per-node", type=int, default=10, help="running pods (default: %(default)s)")
    options = parser.parse_args()
    return judge(
        [
            Target(f"check of {nodes} nodes", measure(nodes, options.pods_per_node), LIMITS.get(nodes, 0.0), "s")
            for nodes in options.nodes
        ]
    )


def measure(nodes: int, pods_per_node: int) -> float:
    """The seconds of the longest run."""
    spec = NodeSpec.of_shape(NODE, "sockets:2 numa:1 cores:4 memory:8Gi", topology_manager_policy="single-numa-node")
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox.up([spec]))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        install(sandbox)
        crowd = make_crowd(sandbox, client, Size(nodes, pods_per_node))
        fill(stack.enter_context(Etcd(sandbox.folder)), crowd)
        wait_until_cached(sandbox)
        return max(_run(str(sandbox.kubeconfig)) for _ in range(RUNS))


def _run(kubeconfig: str) -> float:
    """The seconds of one run, which must have done every check."""
    run = timed("check", "-o", "json", "--kubeconfig", kubeconfig)
    document = json.loads(run.stdout)
    assert document["notDone"] == [], document["notDone"]
    codes = Counter(problem["code"] for problem in document["problems"])
    print(
        f"  {run.seconds:.1f} s, of which {run.cpu_seconds:.1f} s of a CPU: {document['done']} checks, "
        f"found {dict(codes)}",
        flush=True,
    )
    return run.seconds


if __name__ == "__main__":
    sys.exit(main())
