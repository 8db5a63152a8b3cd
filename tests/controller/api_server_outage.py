"""``python -m tests.controller.api_server_outage``: the API server is away for half a minute, and no pod is lost.

On a cluster of its own. The scheduler, the kubelets and the node controller come back as late as they like: after so
long an absence client-go waits for 25.6 s between two attempts, and up to twice that with its jitter
(tools/cache/reflector.go). The operator's own part is timed.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.clusters import NODE_A, NODE_B, Cluster, pod, two_node_cluster
from tests.operator_process import Operator
from tests.waiting import eventually

from topomend.kube.resources import NODES

AWAY_SECONDS = 30.0
KUBERNETES_BACK_OFF = 90.0
"""Seconds within which Kubernetes' own programs work again after the API server was away."""

UNGATE_SECONDS = 20.0


def main() -> None:
    """Go through it, and show the operator's log."""
    with two_node_cluster() as cluster, TemporaryDirectory() as folder:
        cluster.fragment()
        operator = Operator(cluster.sandbox.kubeconfig, Path(folder) / "operator.log")
        try:
            operator.wait_until_it_watches()
            _go_through(cluster)
            assert operator.process.poll() is None
            assert "Traceback" not in operator.text()
        finally:
            operator.terminate()
            print(operator.text())


def _go_through(cluster: Cluster) -> None:
    cluster.sandbox.stop_api_server()
    time.sleep(AWAY_SECONDS)
    cluster.sandbox.start_api_server()
    made = eventually("the pod to be accepted", lambda: cluster.create(pod("train", 3, preferred=NODE_A)))
    begun = time.monotonic()
    eventually("the kubelet to refuse it", lambda: _is_refused_or_new(cluster, made), KUBERNETES_BACK_OFF)
    refused = time.monotonic()
    eventually("the nodes to be ready", lambda: all(map(_is_ready, cluster.client.list(NODES).items)))
    ready = time.monotonic()
    eventually("its replacement to be ungated", lambda: _is_ungated(cluster, made), UNGATE_SECONDS)
    ungate = time.monotonic()
    running = eventually("train to run again", lambda: cluster.running("train"), KUBERNETES_BACK_OFF)
    assert running["spec"]["nodeName"] == NODE_B
    print(
        f"accepted to refused {refused - begun:.1f} s, to ready nodes {ready - refused:.1f} s, "
        f"to ungated {ungate - ready:.1f} s, to running {time.monotonic() - ungate:.1f} s"
    )


def _is_refused_or_new(cluster: Cluster, old: dict[str, Any]) -> bool:
    current = cluster.get(old["metadata"]["name"])
    is_new: bool = current["metadata"]["uid"] != old["metadata"]["uid"]
    return is_new or current["status"].get("phase") == "Failed"


def _is_ready(node: dict[str, Any]) -> bool:
    is_ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in node["status"]["conditions"]
    )
    return is_ready and not node["spec"].get("taints")


def _is_ungated(cluster: Cluster, old: dict[str, Any]) -> bool:
    """Whether the pod's replacement is there, and without a gate."""
    current = cluster.get(old["metadata"]["name"])
    is_new: bool = current["metadata"]["uid"] != old["metadata"]["uid"]
    return is_new and not current["spec"].get("schedulingGates")


if __name__ == "__main__":
    main()
