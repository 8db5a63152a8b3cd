"""Real kubelets on odd machines and on those that people have: cadvisor takes their files, and the kubelet answers as
replay says.

Interleaved numbers, offline CPUs, unlike cores, NUMA nodes without CPUs, without memory, and 34 of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import pytest
from tests.builders import pod_manifest
from tests.waiting import eventually

from topomend.discover.allocations import AllocationReader
from topomend.kube.client import Client, connect
from topomend.kube.resources import PODS
from topomend.model.bitmask import NUMAMask, format_id_list
from topomend.model.nodes.node_state import NodeState, PodAllocation
from topomend.model.shapes.known_machines import MACHINES, KnownMachine
from topomend.model.shapes.shape import parse_shape
from topomend.model.verdict import Verdict
from topomend.replay.admission import admit
from topomend.replay.gates import DEFAULT_MAX_NUMA_NODES
from topomend.sandbox import NodeSpec, Sandbox
from topomend.wire.pods.pod import read_pod

pytestmark = [pytest.mark.cluster, pytest.mark.night, pytest.mark.timeout(900)]

Limits: TypeAlias = Mapping[str, str]

Held: TypeAlias = list[tuple[str, str, list[NUMAMask]]]
"""The CPUs of each pod that has any, and the NUMA nodes of its memory."""

AT_ONCE = 7
"""How many kubelets run beside each other."""

ODD = (
    NodeSpec.of_shape(
        "interleaved",
        "sockets:2 cores:4 threads:2 memory:2Gi numbering:interleaved offline:0,5",
        topology_manager_policy="single-numa-node",
    ),
    NodeSpec.of_shape(
        "hybrid",
        "numa:2 cores:2 threads:2 ecores:2 memory:2Gi numbering:adjacent",
        topology_manager_policy="restricted",
    ),
    NodeSpec.of_shape(
        "memory-only",
        "sockets:2 cores:3 memory:1Gi cpuless:4Gi,0 distances:12,20",
        topology_manager_policy="restricted",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
    ),
    NodeSpec.of_shape("memory-less", "sockets:2 cores:3 memory:0,2Gi", topology_manager_policy="best-effort"),
    NodeSpec.of_shape(
        "ten-nodes",
        "cores:6 memory:1Gi cpuless:9x256Mi",
        topology_manager_policy="single-numa-node",
        topology_manager_policy_options={"max-allowable-numa-nodes": "10"},
    ),
)

ODD_REQUESTS = tuple(
    {"cpu": cpu, "memory": memory} for cpu, memory in (("2", "64Mi"), ("3", "1200Mi"), ("2", "512Mi"), ("6", "64Mi"))
)
"""The limits of each node's pods, one after the other: what fits, what no NUMA node of one kind has, and so on."""


def test_kubelets_on_odd_machines_answer_as_replay_says() -> None:
    _compare(ODD, dict.fromkeys((spec.name for spec in ODD), ODD_REQUESTS))


@pytest.mark.parametrize("first", range(0, len(MACHINES), AT_ONCE))
def test_kubelets_on_machines_that_people_have_answer_as_replay_says(first: int) -> None:
    machines = MACHINES[first : first + AT_ONCE]
    specs = [_spec(f"m{number}", machine) for number, machine in enumerate(machines, first)]
    _compare(specs, {spec.name: _requests(spec) for spec in specs})


def _spec(name: str, machine: KnownMachine) -> NodeSpec:
    """A node of a short name: the path of its kubelet's socket must not be long.

    On 34 NUMA nodes a Memory Manager would never answer.
    """
    nodes = len(parse_shape(machine.shape).machine().numa_nodes)
    settings: dict[str, Any] = {"topology_manager_policy": "single-numa-node"}
    if nodes > DEFAULT_MAX_NUMA_NODES:
        settings["topology_manager_policy_options"] = {"max-allowable-numa-nodes": str(nodes)}
        settings["memory_manager_policy"] = "None"
    return NodeSpec.of_shape(name, machine.shape, **settings)


def _requests(spec: NodeSpec) -> Sequence[Limits]:
    """Two CPUs; one more than any NUMA node has; as many as one has, which the reserved one may prevent; and devices
    with CPUs, one by one and more than are on one NUMA node."""
    most = max(cpus.bit_count() for cpus in spec.machine.cpus_of_numa_node.values())
    cpus = ("2", str(most + 1), str(most))
    resource = next((device.resource for device in spec.devices), "")
    counts = (1, 1, 5) if resource else ()
    return (
        *({"cpu": count, "memory": "64Mi"} for count in cpus),
        *({"cpu": "1", "memory": "64Mi", resource: str(count)} for count in counts),
    )


def _compare(specs: Sequence[NodeSpec], requests: Mapping[str, Sequence[Limits]]) -> None:
    """Have each node's kubelet answer for pods of these limits, and hold the admitted ones as replay says."""
    with Sandbox.up(specs, on_progress=print) as sandbox, closing(connect(str(sandbox.kubeconfig))) as client:
        answers = set()
        for spec in specs:
            state = NodeState(spec.name, spec.machine, spec.kubelet, spec.devices)
            for number, limits in enumerate(requests[spec.name]):
                container = {"name": "main", "image": "sandbox/pause", "resources": {"limits": limits}}
                content = pod_manifest(f"{spec.name}-{number}", container, node=spec.name)
                created = client.create(PODS, content, "default")
                verdict, state = admit(state, read_pod(created))
                answers.add(verdict.admitted)
                _wait_for(client, created["metadata"]["name"], verdict)
            _wait_until_held(sandbox, spec.name, _held(state.pods))
        assert answers == {True, False}


def _wait_for(client: Client, name: str, verdict: Verdict) -> None:
    """Until the kubelet's answer is there, which must be the predicted one."""
    status = eventually(
        f"an answer to {name}",
        lambda: next(
            (status for status in [client.get(PODS, name, "default")["status"]] if status["phase"] != "Pending"), None
        ),
        60,
    )
    admitted = status["phase"] == "Running"
    assert (admitted, status.get("reason", "")) == (verdict.admitted, verdict.reason), f"{name}: {status}"


def _wait_until_held(sandbox: Sandbox, node: str, predicted: Held) -> None:
    kubelet = sandbox.folder / "nodes" / node / "kubelet"
    reader = AllocationReader(kubelet / "pod-resources" / "kubelet.sock", kubelet)
    eventually(f"{node} to hold {predicted}", lambda: _held(reader.read().pods) == predicted, 60)


def _held(pods: tuple[PodAllocation, ...]) -> Held:
    return sorted(
        (pod.name, format_id_list(container.cpus), sorted(block.numa_nodes for block in container.memory))
        for pod in pods
        for container in pod.containers
        if container.cpus
    )
