"""No state that a kubelet's managers reach by admissions is called contradictory, on any machine.

Random machines have uneven cores, offline CPUs and NUMA nodes without CPUs or memory; kubelets have random options. The
state is written to files and listed as the kubelet does, and read by the agent's own readers.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.seeds import SEED, cases
from verify.oracle.cases import node_state
from verify.oracle.random_cases.generate import random_case
from verify.oracle.restoring.saved import saved_fields, written

from topomend.discover.allocations import join
from topomend.discover.assemble import Discovery, assemble
from topomend.discover.host import Host
from topomend.discover.kubelet_config import KubeletConfig
from topomend.discover.pod_resources.pod_resources import PodResources
from topomend.discover.state_files import read_files, read_state
from topomend.model.nodes.node_state import NodeState, PodAllocation
from topomend.replay.admission import admit, release
from topomend.replay.container_manager import ContainerManager, start
from topomend.wire.pods.pod import read_pod

CASES = cases(20, 60)


def reached(random: Random, version: str) -> Iterator[tuple[NodeState, ContainerManager]]:
    """A random node after each of its admissions and ends."""
    case = random_case(random)
    case["kubelet"]["version"] = version
    node = node_state(case)
    kubelet = start(node.machine, node.kubelet)
    if isinstance(kubelet, str):
        return
    for step in case["steps"]:
        if "admit" in step:
            verdict, after = admit(node, read_pod(step["admit"]))
            node = after if verdict.admitted else node
        elif node.pods and random.random() < 0.3:
            ended = random.choice(node.pods)
            node = release(node, ended.namespace, ended.name)
        yield node, kubelet


def listed(pod: PodAllocation) -> PodAllocation:
    """A pod as the kubelet lists it: without uid and init containers; the parts of a pod's own are listed as well."""
    return replace(pod, uid="", containers=tuple(each for each in pod.containers if not each.init), cpus=0, memory=())


def discovered(node: NodeState, kubelet: ContainerManager, folder: Path) -> Discovery:
    """What an agent makes of the node."""
    for name, content in written(saved_fields(node, kubelet), kubelet.gates).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    allocatable = node.machine.cpus & ~kubelet.cpu.reserved if kubelet.cpu else 0
    answer = PodResources(tuple(map(listed, node.pods)), allocatable, node.devices, {})
    allocations = join(answer, read_state(folder))
    assert allocations is not None, node.pods
    files = read_files(folder, str(folder))
    return assemble(node.name, Host(node.machine), KubeletConfig(node.kubelet), replace(allocations, files=files))


@pytest.mark.parametrize("version", ["v1.30.14", "v1.34.4", "v1.37.2"])
def test_no_state_that_admissions_reach_is_called_contradictory(version: str, tmp_path: Path) -> None:
    random = Random(SEED)
    print(f"seed {SEED}")
    for number in range(CASES):
        for node, kubelet in reached(random, version):
            discovery = discovered(node, kubelet, tmp_path)
            for condition in discovery.conditions:
                assert condition.status == "True", (number, condition, node.pods)
                assert "would have forgotten" not in condition.message, (number, condition)
            if kubelet.cpu is None or kubelet.cpu.topology.is_even:
                assert "of different sizes" not in discovery.conditions[0].message
            assert pods_of(discovery.state.pods) == pods_of(with_resources(node))


def pods_of(pods: tuple[PodAllocation, ...]) -> set[tuple[str, str]]:
    return {(pod.namespace, pod.name) for pod in pods}


def with_resources(node: NodeState) -> tuple[PodAllocation, ...]:
    return tuple(
        pod
        for pod in node.pods
        if pod.cpus or pod.memory or any(each.cpus or each.memory or each.devices for each in pod.containers)
    )
