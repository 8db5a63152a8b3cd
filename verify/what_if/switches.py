"""Switches of policy carried out: a real kubelet is drained, gets another policy, and is given the same pods again.

Before that, ``kubectl numa what-if`` says which of them it would refuse, and why. Nodes take turns side by side.
"""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import yaml
from tests.builders import pod_manifest
from tests.clusters import Cluster, shown
from tests.waiting import eventually
from verify.room.clusters import CONTAINERS

from topomend.cli.flags.kubelet_flags import TOPOLOGY_MANAGER_POLICIES, TOPOLOGY_MANAGER_SCOPES
from topomend.kube.resources import NODES
from topomend.sandbox import NodeSpec

SHAPES = (
    "numa:2 cores:4 memory:4Gi device:vendor.com/gpu@0=1,1=2",
    "sockets:2 numa:2 cores:2 threads:2 memory:4Gi device:vendor.com/gpu@0=1,3=1",
    "numa:2 cores:6 memory:8Gi device:vendor.com/gpu@0=1,1=1",
    "sockets:2 numa:1 cores:4 threads:2 memory:6Gi",
)
COPIES = 2
"""How many nodes there are of each shape."""

STATE = ("cpu_manager_state", "memory_manager_state", "device-plugins/kubelet_internal_checkpoint")
"""The kubelet's state files, in its folder."""

PROGRAM = (sys.executable, "-c", "from topomend.cli.kubectl_numa import main; main()", "what-if", "-o", "json")

Settings = tuple[str, str]
"""A policy and a scope of the Topology Manager."""

Refusals = Mapping[str, str]
"""The kubelet's reason, by the name of each pod that it refuses."""


def specs() -> list[NodeSpec]:
    """The nodes of a sandbox on which switches are tried."""
    return [
        NodeSpec.of_shape(f"n{number}-{copy}", shape) for number, shape in enumerate(SHAPES) for copy in range(COPIES)
    ]


@dataclass(frozen=True)
class Switch:
    """One switch of a kubelet: the ``pods`` that ran before it, and which it refuses by what-if and in truth."""

    node: str
    before: Settings
    after: Settings
    pods: Sequence[str]
    predicted: Refusals
    refused: Refusals

    @property
    def fault(self) -> str:
        """What is wrong; empty where both agree."""
        if self.predicted == self.refused:
            return ""
        return f"{self.node} {self.before} to {self.after}, {self.pods}: predicted {self.predicted}, {self.refused}"

    @property
    def reasons(self) -> Counter[str]:
        """How often the kubelet gave each reason."""
        return Counter(self.refused.values())


def _devices_of(cluster: Cluster, node: str) -> Mapping[str, int]:
    """How many devices of each resource the node offers at first."""
    allocatable = cluster.client.get(NODES, node)["status"]["allocatable"]
    return {resource: int(amount) for resource, amount in allocatable.items() if "/" in resource}


class Lane:
    """One node, whose kubelet gets one policy after the other. ``restarting`` is held by one lane at a time."""

    def __init__(self, cluster: Cluster, node: str, seed: int, restarting: threading.Lock) -> None:
        self._cluster, self._node, self._random = cluster, node, Random(f"{seed} {node}")
        self._restarting, self._devices = restarting, _devices_of(cluster, node)
        self._kubelet = cluster.sandbox.folder / "nodes" / node / "kubelet"
        self._settings: Settings = ("none", "container")

    def switches(self) -> Iterator[Switch]:
        """One after another."""
        for number in range(1 << 30):
            yield self._switch(number)

    def _switch(self, number: int) -> Switch:
        before, containers = self._settings, self._random.choices(CONTAINERS, k=self._random.randint(3, 12))
        manifests = {f"{self._node}-{number}-{each}": container for each, container in enumerate(containers)}
        for name, container in manifests.items():
            self._create(name, container)
        ran = self._in_order()
        after = self._random.choice(TOPOLOGY_MANAGER_POLICIES), self._random.choice(TOPOLOGY_MANAGER_SCOPES)
        predicted = self._predicted(after)
        self._empty()
        self._restart(after)
        refused = {name: reason for name in ran if (reason := self._create(name, manifests[name]))}
        self._empty()
        return Switch(self._node, before, after, [f"{name} {manifests[name]}" for name in ran], predicted, refused)

    def _create(self, name: str, container: str) -> str:
        """Create a pod on the node; the reason for which its kubelet refuses it, empty where it runs."""
        content = pod_manifest(name, container, node=self._node)
        content["spec"]["terminationGracePeriodSeconds"] = 0
        self._cluster.create(content)
        return str(eventually(f"{name} to be admitted or not", lambda: self._answer(name), 60)).removeprefix("runs")

    def _answer(self, name: str) -> str:
        status = self._cluster.get(name)["status"]
        if status.get("phase") == "Failed":
            return str(status.get("reason", ""))
        return "runs" if status.get("phase") == "Running" else ""

    def _in_order(self) -> list[str]:
        """The pods that run on the node, as their kubelet started them; by age those of one second."""
        running = [content for content in self._own() if content["status"]["phase"] == "Running"]
        running.sort(key=lambda each: (each["status"]["startTime"], each["metadata"]["creationTimestamp"]))
        return [content["metadata"]["name"] for content in running]

    def _own(self) -> list[dict[str, Any]]:
        return [content for content in self._cluster.pods() if content["spec"].get("nodeName") == self._node]

    def _predicted(self, settings: Settings) -> Refusals:
        eventually(f"{self._node} to offer its devices", lambda: self._offered() == self._devices, 60)
        policy, scope = settings
        flags = (f"--policy={policy}", f"--scope={scope}", f"--kubeconfig={self._cluster.sandbox.kubeconfig}")
        done = subprocess.run([*PROGRAM, *flags], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        refused = json.loads(done.stdout)["outcomes"][-1]["refusedPods"]
        return {pod["name"]: pod["reason"] for pod in refused if pod["node"] == self._node}

    def _offered(self) -> Mapping[str, int]:
        allocatable = self._cluster.client.get(NODES, self._node)["status"]["allocatable"]
        return {resource: int(allocatable.get(resource, 0)) for resource in self._devices}

    def _empty(self) -> None:
        for content in self._own():
            self._cluster.remove(content)
        eventually(f"{self._node} to be empty", lambda: not shown(self._cluster, self._node), 60)

    def _restart(self, settings: Settings) -> None:
        """Give the kubelet these settings, as an administrator does: without pods, and without its state files."""
        sandbox, file = self._cluster.sandbox, self._kubelet / "config.yaml"
        policy, scope = self._settings = settings
        content = yaml.safe_load(file.read_text())
        file.write_text(json.dumps({**content, "topologyManagerPolicy": policy, "topologyManagerScope": scope}))
        with self._restarting:
            sandbox.stop_kubelet(self._node)
            for name in STATE:
                (self._kubelet / name).unlink(missing_ok=True)
            sandbox.start_kubelet(self._node)
        # What the Node says may be from before: until its plugin has registered, a kubelet has no devices.
        eventually(f"the devices of {self._node}", lambda: self._registered() == self._devices, 60)

    def _registered(self) -> Mapping[str, int]:
        """How many devices of each resource plugins have registered with the kubelet."""
        checkpoint = self._kubelet / STATE[-1]
        if not self._devices or not checkpoint.exists():
            return {}
        registered = json.loads(checkpoint.read_text())["Data"]["RegisteredDevices"] or {}
        return {resource: len(devices) for resource, devices in registered.items()}
