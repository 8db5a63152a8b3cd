"""``python -m verify.bench.defragment_cost``: how long ``kubectl numa defragment`` takes on 1,000 nodes.

A sandbox gets Nodes, NodeTopology objects and some 15,000 running pods, of which those that a NodeTopology lists belong
to one ReplicaSet in a steered namespace and may all be moved. The time is that of the whole program, the start of
Python included; the longest of three runs counts; its CPU time is printed too. Exits with 1 if the target is missed.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from verify.bench.etcd import Etcd
from verify.bench.operator_cost import NODE, Crowd, Size, fill, make_crowd, wait_until_cached
from verify.bench.plugin import timed
from verify.contended.run import install
from verify.targets import Target, judge

from topomend.kube.client import Client, connect
from topomend.kube.resources import NAMESPACES, REPLICA_SETS
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.group import STEER_LABEL

LIMIT = 10.0
"""Seconds."""

RUNS, PODS_PER_NODE = 3, 6
"""Beside these running pods each node has those that its NodeTopology lists: ten on average."""

OWNER = "moved"


def main() -> int:
    """Measure, and compare with the limit."""
    parser = argparse.ArgumentParser(prog="python -m verify.bench.defragment_cost", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000, help="how many (default: %(default)s)")
    nodes = parser.parse_args().nodes
    return judge([Target(f"defragment on {nodes} nodes", measure(nodes), LIMIT, "s")])


def measure(nodes: int) -> float:
    """The seconds of the longest run."""
    spec = NodeSpec.of_shape(NODE, "sockets:2 numa:1 cores:4 memory:8Gi", topology_manager_policy="single-numa-node")
    with ExitStack() as stack:
        sandbox = stack.enter_context(Sandbox.up([spec]))
        client = connect(str(sandbox.kubeconfig))
        stack.callback(client.close)
        install(sandbox)
        crowd = make_crowd(sandbox, client, Size(nodes, PODS_PER_NODE))
        owned = list(_owned(crowd, client))
        etcd = stack.enter_context(Etcd(sandbox.folder))
        fill(etcd, crowd)
        etcd.put(owned)
        wait_until_cached(sandbox)
        return max(_run(str(sandbox.kubeconfig)) for _ in range(RUNS))


def _owned(crowd: Crowd, client: Client) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods that NodeTopologies list, and these; their namespaces are steered and have the ReplicaSet of all."""
    occupied = [each for number in range(crowd.size.nodes) for each in crowd.occupied(number)]
    pods = [content for key, content in occupied if key.startswith("pods/")]
    counts = Counter(pod["metadata"]["namespace"] for pod in pods)
    names = [container["name"] for container in pods[0]["spec"]["containers"]]
    template = {"containers": [{"name": name, "image": "sandbox/pause"} for name in names]}
    owners = {namespace: _owner(client, namespace, number, template) for namespace, number in counts.items()}
    for key, content in occupied:
        if key.startswith("pods/"):
            metadata = content["metadata"]
            yield key, {**content, "metadata": {**metadata, "ownerReferences": [owners[metadata["namespace"]]]}}
        else:
            yield key, content


def _owner(client: Client, namespace: str, pods: int, template: dict[str, Any]) -> dict[str, Any]:
    """The reference to a ReplicaSet of so many pods, all of them ready: no controller runs that would count them."""
    client.merge(NAMESPACES, namespace, {"metadata": {"labels": {STEER_LABEL: "enabled"}}})
    labels = {"app": OWNER}
    made_of = {"metadata": {"labels": labels}, "spec": template}
    spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": made_of}
    head = {"apiVersion": REPLICA_SETS.api_version, "kind": "ReplicaSet", "metadata": {"name": OWNER}}
    made = client.create(REPLICA_SETS, head | {"spec": spec}, namespace)
    status = {"replicas": pods, "readyReplicas": pods, "availableReplicas": pods}
    client.merge(REPLICA_SETS, OWNER, {"status": status}, namespace, subresource="status")
    reference = {"apiVersion": REPLICA_SETS.api_version, "kind": "ReplicaSet", "name": OWNER, "controller": True}
    return reference | {"uid": made["metadata"]["uid"]}


def _run(kubeconfig: str) -> float:
    """The seconds of one run, which must have looked at most pods that a NodeTopology lists."""
    run = timed("defragment", "--older-than=1s", "--threshold=0.1", "-o", "json", "--kubeconfig", kubeconfig)
    answer = json.loads(run.stdout)
    moves, looked_at = len(answer["moves"]), answer["lookedAt"]
    print(
        f"  {run.seconds:.1f} s, of which {run.cpu_seconds:.1f} s of a CPU: {moves} moves, looked at {looked_at} of "
        f"{answer['movable']} pods",
        flush=True,
    )
    print(f"  not moved: {answer['leftOut']}; not proven: {answer['unproven']}", flush=True)
    assert looked_at, run.stderr
    return run.seconds


if __name__ == "__main__":
    sys.exit(main())
