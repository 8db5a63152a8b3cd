"""Advice carried out: on real kubelets the named pods go, and the pod then has to be admitted.

Each node is filled with random pods, a random pod is asked about by ``kubectl numa make-room``, the named pods are
deleted, and the pod is bound there. Nodes take turns side by side.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.builders import pod_manifest
from tests.clusters import Cluster, shown
from tests.waiting import eventually
from verify.room.clusters import CONTAINERS, WANTED

from topomend.kube.resources import NODE_TOPOLOGIES
from topomend.replay.admission import admit
from topomend.sandbox import NodeSpec
from topomend.wire.pods.pod import read_pod

SHAPES = {
    "single": (
        "numa:2 cores:4 memory:4Gi device:vendor.com/gpu@0=1,1=2",
        {"topology_manager_policy": "single-numa-node"},
    ),
    "restricted": (
        "sockets:2 numa:2 cores:2 threads:2 memory:4Gi device:vendor.com/gpu@0=1,3=1",
        {"topology_manager_policy": "restricted"},
    ),
    "pods": (
        "numa:2 cores:6 memory:8Gi device:vendor.com/gpu@0=1,1=1",
        {"topology_manager_policy": "single-numa-node", "topology_manager_scope": "pod"},
    ),
    "best-effort": ("sockets:2 numa:1 cores:4 threads:2 memory:6Gi", {"topology_manager_policy": "best-effort"}),
}
"""The nodes: shape and settings of the kubelet."""

PROGRAM = (sys.executable, "-c", "from topomend.cli.kubectl_numa import main; main()", "make-room", "-o", "json")


COPIES = 2
"""How many nodes there are of each shape."""


def specs() -> list[NodeSpec]:
    """The nodes of a sandbox on which advice is tried."""
    return [
        NodeSpec.of_shape(f"{name}-{copy}", shape, **settings)
        for name, (shape, settings) in SHAPES.items()
        for copy in range(COPIES)
    ]


@dataclass(frozen=True)
class Tried:
    """A piece of advice: how many pods had to go, and what is wrong; empty where the pod was admitted."""

    gone: int
    fault: str


class Lane:
    """One node, on which advice is asked for and carried out until so many pieces are tried."""

    def __init__(self, cluster: Cluster, node: str, seed: int, folder: Path) -> None:
        self._cluster, self._node, self._random = cluster, node, Random(f"{seed} {node}")
        self._file = folder / f"{node}.json"

    def tries(self) -> Iterator[Tried | None]:
        """One after another; None where nothing had to go, or nothing helped."""
        for number in range(1 << 30):
            yield self._try(number)

    def _try(self, number: int) -> Tried | None:
        try:
            self._fill(number)
            for containers in self._random.sample(WANTED, len(WANTED)):
                wanted = self._manifest(f"{self._node}-wanted-{number}", *containers)
                self._file.write_text(json.dumps(wanted))
                if (advice := self._advice())["pods"]:
                    return self._carry_out(wanted, advice)
            return None
        finally:
            self._empty()

    def _fill(self, number: int) -> None:
        """Fill the node with what it admits, by its own published state."""
        state = self._cluster.states[self._node]
        left = (state.machine.cpus.bit_count() - 1) * 1000
        for filler in range(self._random.randint(3, 12)):
            content = self._manifest(f"{self._node}-{number}-{filler}", self._random.choice(CONTAINERS))
            pod = read_pod({**content, "metadata": {**content["metadata"], "namespace": "default"}})
            verdict, after = admit(state, pod)
            cpus = sum(container.resources.requests.get("cpu", 0) for container in pod.containers)
            if verdict.admitted and cpus <= left:
                state, left = after, left - cpus
                self._create(content)
        held = {pod.name for pod in state.pods}
        eventually(f"{self._node} to publish its pods", lambda: held <= shown(self._cluster, self._node), 60)

    def _manifest(self, name: str, *containers: str) -> dict[str, Any]:
        content = pod_manifest(name, *containers, node=self._node)
        content["spec"]["terminationGracePeriodSeconds"] = 0
        return content

    def _create(self, content: dict[str, Any]) -> str:
        """Create a pod, and return the phase that its kubelet gives it."""
        name = content["metadata"]["name"]
        self._cluster.create(content)
        return str(eventually(f"{name} to be admitted or not", lambda: self._answer(name), 60))

    def _answer(self, name: str) -> str:
        phase = self._cluster.phase(name)
        return phase if phase in ("Running", "Failed") else ""

    def _advice(self) -> dict[str, Any]:
        command = (*PROGRAM, "-f", str(self._file), "--node", self._node)
        kubeconfig = ("--kubeconfig", str(self._cluster.sandbox.kubeconfig))
        done = subprocess.run([*command, *kubeconfig], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        return dict(json.loads(done.stdout))

    def _carry_out(self, wanted: dict[str, Any], advice: dict[str, Any]) -> Tried:
        names = [pod["name"] for pod in advice["pods"]]
        before = shown(self._cluster, self._node)
        for name in names:
            self._cluster.remove(self._cluster.get(name))
        going = before.intersection(names)
        eventually("the named pods to be gone", lambda: not going & shown(self._cluster, self._node), 60)
        phase = self._create(wanted)
        status = self._cluster.get(wanted["metadata"]["name"])["status"]
        fault = "" if phase == "Running" else f"{advice} did not help {wanted['metadata']['name']}: {status}"
        return Tried(len(names), fault)

    def _empty(self) -> None:
        for content in self._cluster.pods():
            if content["spec"].get("nodeName") == self._node:
                self._cluster.remove(content)
        eventually(f"{self._node} to be empty", lambda: not shown(self._cluster, self._node), 60)


def wait_for_agents(cluster: Cluster) -> None:
    """Wait until every node publishes."""
    eventually("the agents", lambda: len(cluster.client.list(NODE_TOPOLOGIES).items) == len(cluster.states), 60)
