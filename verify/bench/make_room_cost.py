"""``python -m verify.bench.make_room_cost``: how long ``kubectl numa make-room`` takes on 1,000 nodes.

A sandbox gets Nodes, NodeTopology objects and some 15,000 running pods, of which each node holds those that its
NodeTopology lists; the pod that is asked about has no room before another has gone. The time is that of the whole
program, the start of Python included; the longest of three runs counts. Exits with 1 if the target is missed.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.builders import pod_manifest
from verify.bench.etcd import Etcd
from verify.bench.operator_cost import NODE, Size, fill, make_crowd, wait_until_cached
from verify.bench.plugin import timed
from verify.contended.run import install
from verify.targets import Target, judge

from topomend.kube.client import connect
from topomend.sandbox import NodeSpec, Sandbox

LIMIT = 2.0
"""Seconds."""

RUNS, PODS_PER_NODE = 3, 6
"""Beside these running pods each node has those that its NodeTopology lists: 2 to 7."""

WANTED = {"cpu": "24", "memory": "60Gi", "vendor.com/gpu": "2"}


def main() -> int:
    """Measure, and compare with the limit."""
    parser = argparse.ArgumentParser(prog="python -m verify.bench.make_room_cost", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000, help="how many (default: %(default)s)")
    nodes = parser.parse_args().nodes
    return judge([Target(f"make-room on {nodes} nodes", measure(nodes), LIMIT, "s")])


def measure(nodes: int) -> float:
    """The seconds of the longest run."""
    spec = NodeSpec.of_shape(NODE, "sockets:2 numa:1 cores:4 memory:8Gi", topology_manager_policy="single-numa-node")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topomend-make-room-cost-")))
        sandbox = stack.enter_context(Sandbox.up([spec]))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        install(sandbox)
        crowd = make_crowd(sandbox, client, Size(nodes, PODS_PER_NODE))
        etcd = stack.enter_context(Etcd(sandbox.folder))
        fill(etcd, crowd)
        etcd.put(each for number in range(nodes) for each in crowd.occupied(number))
        wait_until_cached(sandbox)
        asked = folder / "pod.json"
        asked.write_text(
            json.dumps(pod_manifest("wanted", " ".join(f"{key}={value}" for key, value in WANTED.items())))
        )
        return max(_run(str(asked), str(sandbox.kubeconfig)) for _ in range(RUNS))


def _run(asked: str, kubeconfig: str) -> float:
    """The seconds of one run, which must have named somebody."""
    run = timed("make-room", "-o", "json", "-f", asked, "--kubeconfig", kubeconfig)
    answer = json.loads(run.stdout)
    assert answer["pods"], run.stderr
    print(
        f"  {run.seconds:.1f} s, of which {run.cpu_seconds:.1f} s of a CPU: {len(answer['pods'])} pods on "
        f"{answer['node']}, fewest {answer['fewest']}",
        flush=True,
    )
    return run.seconds


if __name__ == "__main__":
    sys.exit(main())
