"""Try Karpenter beside steered pods: what asks for a node, after how many seconds, and what does not."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clusters import SYSTEM, Cluster, agents_on, cluster_of, pod, steer
from tests.operator_process import Operator
from tests.waiting import eventually
from tools.commands import Unavailable
from verify.autoscaler import karpenter

from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS
from topomend.sandbox import NodeSpec
from topomend.sandbox.failures import SandboxUnavailable

SHAPE, RESOURCES = (
    "numa:2 cores:8 memory:8Gi",
    {"cpu": "16", "memory": "16Gi", "pods": "100", "ephemeral-storage": "20Gi"},
)
"""The known node, with one CPU reserved, and what Karpenter offers: as many CPUs and as much memory in total."""

NODE, NAMESPACE = "numa-0", "steered"

SIGNAL_SECONDS = 30.0
"""The target from a pod's creation to the request for a node."""

QUIET_SECONDS = 40.0
"""How long no further node may be asked for: several rounds of Karpenter and two of every patience of ours."""


def main() -> int:
    """Build Karpenter, and try it in a network namespace, where it can listen on all addresses."""
    parser = argparse.ArgumentParser(prog="python -m verify.autoscaler", description=__doc__)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    if not parser.parse_args().inside:
        return _run_inside()
    with tempfile.TemporaryDirectory(prefix="topomend-autoscaler-") as folder, _arena(Path(folder)) as cluster:
        return _try(cluster, Path(folder))


def _run_inside() -> int:
    if os.geteuid() != 0:
        sys.stderr.write("a network namespace needs root: sudo make autoscaler\n")
        return 2
    try:
        karpenter.build()
    except (Unavailable, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    inside = 'ip link set lo up && exec "$0" -m verify.autoscaler --inside'
    return subprocess.run(["unshare", "--net", "--", "sh", "-c", inside, sys.executable], check=False).returncode  # noqa: S607  util-linux


@contextmanager
def _arena(logs: Path) -> Iterator[Cluster]:
    """A node, its agent, and Karpenter with a pool of nodes as large."""
    node = NodeSpec.of_shape(NODE, SHAPE, topology_manager_policy="single-numa-node")
    program = karpenter.build()
    with cluster_of([node]) as cluster, agents_on(cluster, logs / "agents.log"):
        eventually("the agent", lambda: cluster.client.list(NODE_TOPOLOGIES).items)
        karpenter.install(cluster.client, program, RESOURCES)
        eventually("the pool", lambda: karpenter.create_pool(cluster.client))
        steer(cluster, NAMESPACE)
        try:
            with karpenter.running(program, cluster.sandbox.kubeconfig, logs / "karpenter.log"):
                yield cluster
        except BaseException:
            for log in sorted(logs.glob("*.log")):
                sys.stderr.write(log.read_text()[-20_000:])
            raise


@contextmanager
def _filled(cluster: Cluster, logs: Path, cpus: tuple[int, int], *flags: str) -> Iterator[None]:
    """Two pods on the node that do not end, and the operator. Afterwards there is no pod and no node of Karpenter's."""
    operator = Operator(cluster.sandbox.kubeconfig, logs / f"operator{''.join(flags)}.log", *flags)
    try:
        operator.wait_until_it_watches()
        for number, amount in enumerate(cpus):
            cluster.create(pod(f"fill-{number}", amount), NAMESPACE)
        eventually("pods to fill the node", lambda: _phases(cluster, "fill-0", "fill-1") == ["Running", "Running"])
        yield
    finally:
        operator.terminate()
    cluster.remove_all()
    for claim in cluster.client.list(karpenter.NODE_CLAIMS).items:
        cluster.client.delete(karpenter.NODE_CLAIMS, claim["metadata"]["name"], uid=claim["metadata"]["uid"])
    eventually(
        "Karpenter's nodes to be gone", lambda: [node["metadata"]["name"] for node in _nodes(cluster)] == [NODE], 60
    )


def _nodes(cluster: Cluster) -> Sequence[dict[str, Any]]:
    return [] if _claims(cluster) else cluster.client.list(NODES).items


def _try(cluster: Cluster, logs: Path) -> int:
    with _filled(cluster, logs, (7, 8)):
        is_good = _try_full_node(cluster)
    with _filled(cluster, logs, (5, 5), "--placeholders"):
        is_good &= _try_numa_nodes(cluster)
    with _filled(cluster, logs, (5, 5), "--placeholders"):
        is_good &= _try_refused(cluster)
    return 0 if is_good else 1


def _try_full_node(cluster: Cluster) -> bool:
    # It is asked about again once the new node is there, of which nothing is known.
    cluster.create(pod("too-wide", 12), NAMESPACE)
    early = _claims_within(cluster, 0, QUIET_SECONDS)
    sys.stdout.write(f"no NUMA node has 12 CPUs: {early} nodes were asked for (target 0)\n")
    return early == 0 and _is_asked_for_once(cluster, "on a full node", NAMESPACE)


def _try_numa_nodes(cluster: Cluster) -> bool:
    return _is_asked_for_once(cluster, "where 5 are free in all and 3 at most on one NUMA node", NAMESPACE)


def _try_refused(cluster: Cluster) -> bool:
    is_good = _is_asked_for_once(cluster, "that a kubelet refused there", "default")
    return is_good and "waits" in {record["spec"]["pod"]["name"] for record in cluster.records()}


def _is_asked_for_once(cluster: Cluster, where: str, namespace: str) -> bool:
    """Whether one node is asked for in time for a pod of 4 CPUs, which runs on the known node once that has room."""
    began = time.monotonic()
    cluster.create(pod("waits", 4), namespace)
    eventually("a node to be asked for", lambda: _claims(cluster), 2 * SIGNAL_SECONDS)
    seconds = time.monotonic() - began
    sys.stdout.write(f"for a pod of 4 CPUs {where} a node was asked for after {seconds:.1f} s (target 30)\n")
    asked = _claims_within(cluster, 1, QUIET_SECONDS)
    sys.stdout.write(f"{asked} nodes were asked for in all (target 1)\n")
    cluster.remove(cluster.get("fill-0", NAMESPACE))
    eventually(
        "the pod to run where others ended", lambda: cluster.get("waits", namespace)["status"]["phase"] == "Running", 60
    )
    eventually("no placeholder to be left", lambda: not cluster.client.list(PODS, namespace=SYSTEM).items)
    sys.stdout.write("the pod runs on the known node, which came free first\n")
    return asked == 1 and seconds <= SIGNAL_SECONDS


def _claims(cluster: Cluster) -> int:
    return len(cluster.client.list(karpenter.NODE_CLAIMS).items)


def _claims_within(cluster: Cluster, expected: int, seconds: float) -> int:
    """How many nodes have been asked for after so many seconds, or as soon as there are more than ``expected``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and _claims(cluster) <= expected:
        time.sleep(1.0)
    return _claims(cluster)


def _phases(cluster: Cluster, *names: str) -> list[str]:
    return [cluster.get(name, NAMESPACE)["status"]["phase"] for name in names]


if __name__ == "__main__":
    sys.exit(main())
