"""Random pods on real kubelets: simulate predicts from the published states what each kubelet answers.

Slow because kubelets take their time: a pod is admitted at once but its status and its state files follow.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.live.conftest import Agents
from tests.seeds import SEED, cases
from tests.waiting import TimedOut, eventually

from topomend.cli.main import main
from topomend.kube.client import Client
from topomend.kube.errors import NotFound
from topomend.kube.resources import NODE_TOPOLOGIES, NODES, PODS
from topomend.model.bitmask import format_id_list, parse_id_list
from topomend.model.nodes.kubelet import DEFAULT_VERSION
from topomend.model.pods.pod import requests_of
from topomend.replay.container_manager import start
from topomend.sandbox import NodeSpec, Sandbox
from topomend.sandbox.releases.go_modules import minor_of
from topomend.wire.node import read_node
from topomend.wire.pods.pod import read_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

PODS_IN_ALL = int(os.environ.get("TOPOMEND_LIVE_PODS", cases(24, 60)))

ALPHA = {"CPUManagerPolicyAlphaOptions": True}

MAIN = (
    NodeSpec.of_shape(
        "single",
        "sockets:1 numa:2 cores:6 memory:8Gi device:vendor.com/gpu@0=1,1=2",
        topology_manager_policy="single-numa-node",
    ),
    NodeSpec.of_shape(
        "restricted",
        "sockets:2 numa:2 cores:2 threads:2 memory:4Gi device:vendor.com/gpu@0=1,3=1",
        topology_manager_policy="restricted",
    ),
    NodeSpec.of_shape(
        "best-effort",
        "sockets:2 numa:1 cores:4 threads:2 memory:6Gi device:vendor.com/gpu@1=2",
        topology_manager_policy="best-effort",
    ),
    NodeSpec.of_shape(
        "whole-pods",
        "sockets:2 numa:1 cores:6 memory:8Gi device:vendor.com/gpu@0=1,1=1",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
    ),
    NodeSpec.of_shape("unmanaged", "sockets:1 numa:2 cores:6 memory:8Gi device:vendor.com/gpu@0=1,1=1"),
    NodeSpec.of_shape(
        "one-numa-node",
        "sockets:1 numa:1 cores:4 threads:2 memory:8Gi device:vendor.com/gpu@0=2",
        topology_manager_policy="single-numa-node",
    ),
)
"""What every test run tries: each policy, policy none included, and a machine of one NUMA node."""

OTHERS = (
    NodeSpec.of_shape(
        "whole-cores",
        "sockets:1 numa:2 cores:4 threads:2 memory:8Gi device:vendor.com/gpu@0=1,1=1",
        topology_manager_policy="single-numa-node",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        reserved_cpus=parse_id_list("0,8"),
    ),
    NodeSpec.of_shape(
        "spread",
        "sockets:2 numa:2 cores:3 memory:4Gi",
        topology_manager_policy="best-effort",
        cpu_manager_policy_options={"distribute-cpus-across-numa": "true"},
    ),
    NodeSpec.of_shape(
        "by-socket",
        "sockets:2 numa:2 cores:3 memory:4Gi device:vendor.com/gpu@0=1,2=1",
        topology_manager_policy="restricted",
        cpu_manager_policy_options={"align-by-socket": "true"},
        feature_gates=ALPHA,
    ),
    NodeSpec.of_shape(
        "closest",
        "sockets:2 numa:2 cores:3 memory:4Gi device:vendor.com/gpu@1=1,2=1",
        topology_manager_policy="best-effort",
        topology_manager_scope="pod",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
    ),
    NodeSpec.of_shape(
        "split-caches",
        "sockets:2 numa:1 cores:6 l3:2 memory:8Gi",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
        cpu_manager_policy_options={"prefer-align-cpus-by-uncorecache": "true"},
    ),
    NodeSpec.of_shape(
        "strict",
        "sockets:1 numa:2 cores:4 threads:2 memory:8Gi",
        topology_manager_policy="restricted",
        cpu_manager_policy_options={"strict-cpu-reservation": "true", "distribute-cpus-across-cores": "true"},
        feature_gates=ALPHA,
    ),
    NodeSpec.of_shape(
        "eight",
        "sockets:2 numa:4 cores:2 memory:2Gi device:vendor.com/gpu@0=1,5=1",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
    ),
)
"""More combinations of policy, scope and options, tried by ``make live``."""

RELEASE = os.environ.get("TOPOMEND_KUBERNETES", DEFAULT_VERSION)

KUBELETS = os.environ.get("TOPOMEND_KUBELETS", RELEASE).split(",")
"""The releases of the kubelets, in turn: an API server's, or up to three minor versions older."""

GATES = {"CPUManagerPolicyAlphaOptions": True, "TopologyManagerPolicyAlphaOptions": True}
"""What the sandbox enables for a node with options."""


WITHOUT_RESIZES = (33, 34)
"""The minor releases whose kubelets also resize a pod that is removed while it is synchronized, and panic, because a
sandbox has no pod cgroups (kuberuntime/kuberuntime_manager.go:doPodResizeAction)."""


def of_release(spec: NodeSpec, release: str) -> NodeSpec:
    """The node with a kubelet of this release."""
    gates = {"InPlacePodVerticalScaling": False} if minor_of(release) in WITHOUT_RESIZES else {}
    kubelet = replace(spec.kubelet, version=release, feature_gates={**spec.kubelet.feature_gates, **gates})
    return replace(spec, kubelet=kubelet)


def starts(spec: NodeSpec) -> bool:
    """Whether a kubelet of its release knows the node's options: v1.30 lacks some of OTHERS."""
    kubelet = replace(spec.kubelet, feature_gates={**spec.kubelet.feature_gates, **GATES})
    return not isinstance(start(spec.machine, kubelet), str)


EVERY = tuple(map(of_release, (*MAIN, *OTHERS) if os.environ.get("TOPOMEND_LIVE_PODS") else MAIN, cycle(KUBELETS)))
SPECS = tuple(filter(starts, EVERY))
"""The nodes of this run. ``test_every_node_of_the_default_release_is_tried`` counts them."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """The kubelets of SPECS."""
    with Sandbox.up(SPECS, version=RELEASE, on_progress=print) as up:
        yield up


def test_every_node_of_the_default_release_is_tried() -> None:
    left_out = [spec.name for spec in EVERY if spec not in SPECS]
    print(f"kubelets of {', '.join(KUBELETS)} do not know the options of: {', '.join(left_out) or 'none'}")
    assert KUBELETS != [DEFAULT_VERSION] or not left_out


@dataclass
class Node:
    """One node, what it can give in all, and the pods that it admitted: what is predicted of each, and asked by it."""

    name: str
    allocatable: Mapping[str, int]
    alive: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def has_room_for(self, pod: dict[str, Any]) -> bool:
        """Whether a scheduler would bind the pod here: the kubelet refuses what does not fit the totals as OutOfcpu
        and its likes, which is no matter of topology."""
        used = Counter[str]()
        for asked in [*self.asked.values(), requests_of(read_pod(pod))]:
            used.update(asked)
        return all(amount <= self.allocatable.get(resource, 0) for resource, amount in used.items())


def test_simulate_on_the_published_topology_agrees_with_the_kubelets_on_random_pods(
    sandbox: Sandbox, with_agents: Agents, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    client = with_agents.start(sandbox)
    nodes = [Node(spec.name, read_node(client.get(NODES, spec.name)).allocatable) for spec in SPECS]
    outcomes: Counter[str] = Counter()
    number = 0
    while number < PODS_IN_ALL or outcomes["TopologyAffinityError"] <= PODS_IN_ALL // 40:  # few seeds have so few
        for node in nodes:
            _end_some(client, node, chance)
        asked = []
        for node in nodes:
            number += 1
            pod = random_pod(f"p{number}", chance)
            while not node.has_room_for(pod):
                pod = random_pod(pod["metadata"]["name"], chance)
                _end_some(client, node, chance, share=0.05)
            topology = settled(client, node)
            predicted = simulated(topology, pod, tmp_path)
            context = json.dumps({"node": topology["status"], "pod": pod})
            asked.append((node, predicted, context, client.create(PODS, _bound(pod, node.name), "default")))
        for node, predicted, context, created in asked:
            seen = eventually("the kubelet's answer", lambda created=created: answered(client, created))  # type: ignore[misc]
            assert what_happened(seen) == (predicted["reason"], predicted["message"]), context
            if predicted["admitted"]:
                node.alive[predicted["name"]] = predicted
                node.asked[predicted["name"]] = requests_of(read_pod(created))
                cpus = eventually("its CPUs", lambda node=node, created=created: cpus_held(sandbox, node.name, created))  # type: ignore[misc]
                assert cpus == {container["name"]: container["cpus"] for container in predicted["containers"]}, (
                    node.name
                )
            else:
                client.delete(PODS, predicted["name"], "default", uid=created["metadata"]["uid"])
            outcomes[predicted["reason"] or "admitted"] += 1
    print(dict(outcomes))
    assert outcomes["admitted"] > PODS_IN_ALL // 5


def random_pod(name: str, chance: random.Random) -> dict[str, Any]:
    """A pod of one or two containers, mostly Guaranteed, sometimes after init containers or beside a sidecar."""
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Always",
        "containers": [_container(f"c{index}", chance) for index in range(chance.choice([1, 1, 1, 2]))],
    }
    if chance.random() < 0.35:
        first = _container("i0", chance) | {"command": ["true"]}
        spec["initContainers"] = [first]
        if chance.random() < 0.3:
            spec["initContainers"].append(_container("s0", chance) | {"restartPolicy": "Always"})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _container(name: str, chance: random.Random) -> dict[str, Any]:
    limits = {"cpu": chance.choice(["1", "1", "2", "2", "3", "4", "5", "6", "1500m"])}
    limits["memory"] = chance.choice(["64Mi", "256Mi", "512Mi", "1Gi", "3Gi"])
    if chance.random() < 0.25:
        limits["vendor.com/gpu"] = chance.choice(["1", "1", "2"])
    resources: dict[str, Any] = {"limits": limits}
    if chance.random() < 0.1:
        resources["requests"] = {"cpu": "500m"}
    return {"name": name, "image": "sandbox/nothing", "resources": resources}


def simulated(topology: dict[str, Any], pod: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What ``topomend simulate`` says, called as a user would."""
    node_file, pod_file = folder / "node.json", folder / "pod.json"
    node_file.write_text(json.dumps(topology))
    pod_file.write_text(json.dumps(pod))
    arguments = ["simulate", "--node", str(node_file), "--pods", str(pod_file), "-o", "json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (0, 1), result.output
    [record] = json.loads(result.stdout)
    assert "unmodelled" not in record
    return dict(record)


def settled(client: Client, node: Node) -> dict[str, Any]:
    """The node's published topology, once it shows exactly what the pods that live there hold."""
    expected = {name: holdings for name, record in node.alive.items() if (holdings := held_by_prediction(record))}

    def as_expected() -> dict[str, Any] | None:
        try:
            topology = client.get(NODE_TOPOLOGIES, node.name)
        except NotFound:
            return None
        status = topology.get("status", {})
        ready = any(
            condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions", [])
        )
        shown = {pod["name"]: holdings for pod in status.get("pods", []) if (holdings := held_as_published(pod))}
        return topology if ready and shown == expected else None

    try:
        topology: dict[str, Any] = eventually(f"{node.name} to publish {expected}", as_expected)
    except TimedOut:
        print(json.dumps(client.get(NODE_TOPOLOGIES, node.name)["status"]))
        raise
    return topology


Held = dict[str, tuple[str, dict[str, int], int]]
"""What containers hold, by name: CPUs, devices by resource, bytes of memory. An init container gives its memory back
as soon as another container starts (memorymanager/memory_manager.go:AddContainer), so in the end it holds none."""


def held_by_prediction(record: dict[str, Any]) -> Held:
    """What the containers of a record of simulate hold, those that hold nothing left out."""
    return _holding(
        (
            container["name"],
            container["cpus"],
            {resource: device["count"] for resource, device in container["devices"].items()},
            0 if container["init"] else sum(block["bytes"] for block in container["memory"]),
        )
        for container in record["containers"]
    )


def held_as_published(pod: dict[str, Any]) -> Held:
    """What the containers of a published pod hold, those that hold nothing left out."""
    return _holding(
        (
            container["name"],
            container.get("cpus", ""),
            {device["resource"]: len(device["ids"]) for device in container.get("devices", [])},
            sum(block["bytes"] for block in container.get("memory", [])),
        )
        for container in pod.get("containers", [])
    )


def _holding(containers: Iterable[tuple[str, str, dict[str, int], int]]) -> Held:
    return {name: (cpus, devices, memory) for name, cpus, devices, memory in containers if cpus or devices or memory}


def answered(client: Client, created: dict[str, Any]) -> dict[str, Any] | None:
    """The pod once its kubelet has refused it or begun to run it."""
    answer = client.get(PODS, created["metadata"]["name"], "default")
    status = answer.get("status", {})
    begun = status.get("containerStatuses") or status.get("initContainerStatuses")
    return answer if status.get("phase") == "Failed" or begun else None


def what_happened(pod: dict[str, Any]) -> tuple[str, str]:
    """The kubelet's reason and message; both empty for a pod that it admitted."""
    status = pod["status"]
    return (status.get("reason", ""), status.get("message", "")) if status["phase"] == "Failed" else ("", "")


def cpus_held(sandbox: Sandbox, node: str, created: dict[str, Any]) -> dict[str, str] | None:
    """Each container's exclusive CPUs by the kubelet's own state file."""
    path = sandbox.folder / "nodes" / node / "kubelet" / "cpu_manager_state"
    entries = json.loads(path.read_text()).get("entries", {}).get(created["metadata"]["uid"], {})
    spec = created["spec"]
    names = [container["name"] for container in [*spec.get("initContainers", []), *spec["containers"]]]
    return {name: format_id_list(parse_id_list(entries.get(name, ""))) for name in names}


def _end_some(client: Client, node: Node, chance: random.Random, share: float = 0.3) -> None:
    for name in list(node.alive):
        if chance.random() < share:
            uid = client.get(PODS, name, "default")["metadata"]["uid"]
            client.delete(PODS, name, "default", uid=uid)
            eventually(f"{name} to be gone", lambda name=name: _gone(client, name))  # type: ignore[misc]
            del node.alive[name], node.asked[name]


def _gone(client: Client, name: str) -> bool:
    try:
        client.get(PODS, name, "default")
    except NotFound:
        return True
    return False


def _bound(pod: dict[str, Any], node: str) -> dict[str, Any]:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}
